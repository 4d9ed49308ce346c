"""When the log of a member that fetches one is synced: rarely while it pours in, at once when it has come."""

from dataclasses import dataclass, field

from cluster.member.log.sync_pacing import SYNC_BYTES, SYNC_INTERVAL_NS, FetchedLogSync

MIB = 1024 * 1024


@dataclass
class Recording:
    append_position: int = 0
    synced_position: int = 0
    synced: list[int] = field(default_factory=list)

    def sync(self) -> int:
        self.synced_position = self.append_position
        self.synced.append(self.append_position)
        return self.synced_position


def test_what_was_appended_once_is_synced_in_the_next_turn():
    recording, fetched = Recording(), FetchedLogSync()
    recording.append_position = 96

    assert fetched.sync(recording, now_ns=1) == 1, "there is work left, so the next turn comes at once"
    assert fetched.sync(recording, now_ns=2) == 0
    assert recording.synced == [96]
    assert fetched.sync(recording, now_ns=3) == 0


def test_a_log_that_pours_in_is_synced_every_eight_mebibytes():
    recording, fetched = Recording(), FetchedLogSync()
    for now_ns in range(1, 33):
        recording.append_position += MIB
        fetched.sync(recording, now_ns)

    assert recording.synced == [SYNC_BYTES * n for n in (1, 2, 3, 4)]


def test_a_log_that_trickles_in_is_synced_at_intervals():
    """A member that is nearly level under a steady load gets something in every turn."""
    recording, fetched = Recording(), FetchedLogSync()
    for turn in range(101):
        recording.append_position += 96
        fetched.sync(recording, now_ns=turn * SYNC_INTERVAL_NS // 50)

    assert len(recording.synced) == 1, "the interval begins with what the last sync has not covered"
    assert recording.append_position - recording.synced_position <= 96 * 50
