"""A standby tells each member of its newest snapshot until that one has heard of it."""

import pytest

from cluster.archive.files import OsFiles
from cluster.archive.recording_log import RecordingLog
from cluster.backup.agent import MS, BackupContext
from cluster.backup.announcements import Announcements
from cluster.protocol.enums import EventCode
from cluster.protocol.session import SessionEvent
from cluster.transport.log_client import Unreachable
from tests.archive.logs import append_term

CONTEXT = BackupContext(response_timeout_ns=1_000 * MS, cool_down_interval_ns=300 * MS)
ENDPOINT = "standby:9100"


class Member:
    """Answers as the test says: None for silence, an exception or a message."""

    def __init__(self):
        self.asked = []
        self.says = None
        self.is_sent = False
        self.closed = 0

    def __call__(self, snapshot):
        self.asked.append(snapshot)
        return self

    def poll(self):
        if isinstance(self.says, Exception):
            raise self.says
        return self.says

    def close(self):
        self.closed += 1


class Standby:
    def __init__(self, directory):
        self.recording_log = RecordingLog.open(directory, files=OsFiles())
        self.members = [Member(), Member()]
        self.events, self.errors = [], []
        self.now_ns = 0

    def open(self):
        self.announcements = Announcements(
            {f"member {i}": member for i, member in enumerate(self.members)},
            self.recording_log,
            ENDPOINT,
            1,
            CONTEXT,
            on_event=self.events.append,
            on_error=lambda error: self.errors.append(str(error)),
        )

    def take_snapshot(self, position, recording_id):
        for service_id in (0, -1):
            self.recording_log.append_snapshot(recording_id - service_id, 1, 0, position, 7, service_id)

    def run(self, after_ms=1):
        self.now_ns += after_ms * MS
        return self.announcements.do_work(self.now_ns)


def told(member):
    return [snapshot.snapshots[0].log_position for snapshot in member.asked]


@pytest.fixture
def standby(tmp_path):
    standby = Standby(str(tmp_path / "cluster"))
    append_term(standby.recording_log, 0, 1, 0, 0)
    return standby


def heard(member):
    """As a member that takes it: the connection ends, and nothing is said."""
    member.is_sent, member.says = True, Unreachable("the member closed the connection")


def test_each_member_hears_once_of_the_newest_snapshot_that_is_there_at_the_start(standby):
    standby.take_snapshot(64, 1)
    standby.take_snapshot(128, 3)
    standby.open()
    standby.run()
    for member in standby.members:
        heard(member)
    standby.run()
    for _ in range(5):
        assert standby.run(after_ms=10_000) == 0, "all have heard"
    assert [told(member) for member in standby.members] == [[128], [128]]
    assert standby.errors == []
    recordings = standby.members[0].asked[0].snapshots
    assert [(r.service_id, r.recording_id, r.archive_endpoint) for r in recordings] == [
        (0, 3, ENDPOINT),
        (-1, 4, ENDPOINT),
    ]


def test_without_a_snapshot_nobody_is_asked(standby):
    standby.open()
    assert standby.run() == 0
    assert standby.events == []


def test_who_is_silent_or_gone_is_asked_again_after_a_pause_and_holds_up_nobody(standby):
    standby.take_snapshot(64, 1)
    standby.open()
    silent, gone = standby.members
    gone.says = Unreachable("member 1: connection refused")
    standby.run()
    standby.run()
    assert standby.errors == ["member 1: connection refused"]
    assert standby.run(after_ms=299 - 1) == 0 and told(gone) == [64], "it waits"
    standby.run(after_ms=2)
    assert told(gone) == [64, 64]
    heard(gone)
    standby.run()
    standby.run(after_ms=1_000)
    assert standby.errors[-1] == "member 0: no answer to the standby's announcement"
    standby.run(after_ms=300)
    heard(silent)
    standby.run()
    assert (told(silent), told(gone)) == ([64, 64], [64, 64])
    assert standby.run(after_ms=10_000) == 0


def test_a_refusal_is_told_once_and_not_repeated_before_the_next_snapshot(standby):
    standby.take_snapshot(64, 1)
    standby.open()
    member, other = standby.members
    heard(other)
    member.says = SessionEvent(0, 1, 0, 0, EventCode.ERROR, detail="standby snapshots are not accepted")
    for _ in range(5):
        standby.run(after_ms=10_000)
    assert told(member) == [64]
    assert standby.errors == [
        "member 0 refuses the standby's snapshot: ERROR: standby snapshots are not accepted"
    ]
    standby.take_snapshot(128, 3)
    standby.announcements.announce()
    standby.run()
    assert told(member) == [64, 128]


def test_a_newer_snapshot_takes_the_place_of_one_that_is_on_its_way(standby):
    standby.take_snapshot(64, 1)
    standby.open()
    standby.run()
    standby.take_snapshot(128, 3)
    standby.announcements.announce()
    member = standby.members[0]
    assert member.closed == 1
    standby.run()
    assert told(member) == [64, 128]
    standby.announcements.close()
    assert member.closed == 2
