"""Single routines of a compiled turn, as Python: what whole turns of a run do not come to."""

from types import SimpleNamespace

import numpy as np
import pytest

from cluster.archive import recording_words as of_recording
from cluster.consensus import quorum
from cluster.log.connection_table import CLIENT, INDEX_LENGTH, KIND, LINK_OUT, OWNER, ROW_WORDS
from cluster.member.busy import egress, leading, measuring, recorder, remote, turn
from cluster.member.busy import words as at
from cluster.member.services.log_limits import ANSWERED, LIMIT, SERVED


def plain(routine):
    return getattr(routine, "py_func", routine)


def tables(**given):
    return SimpleNamespace(words=[0] * at.WORDS, **given)


def connections(*rows):
    """Kind and owner, by descriptor."""
    words = np.zeros(len(rows) * ROW_WORDS, np.int64)
    for descriptor, (kind, owner) in enumerate(rows):
        words[descriptor * ROW_WORDS + KIND], words[descriptor * ROW_WORDS + OWNER] = kind, owner
    return words


# ---- the leader


def test_a_commit_that_stops_at_an_entry_is_looked_at_again(monkeypatch):
    """By Python, which does nothing where there is no news."""
    monkeypatch.setattr(leading.quorum, "take_in", lambda *_: 96)
    monkeypatch.setattr(leading, "poll_log", lambda *_: False)
    t = tables(leadership=[0] * quorum.LEADERSHIP_WORDS, members=None, recording=[0] * 6)
    plain(leading.update_leader_position)(t)

    assert t.leadership[quorum.HAS_NEWS]
    assert t.words[at.COMMIT_POSITION] == t.leadership[quorum.COMMIT_POSITION] == 0


def test_members_come_first_by_their_ids_then_clients_from_the_one_after_the_last():
    kinds = [
        (CLIENT, 7),
        (CLIENT, 3),
        (turn.LINK_IN, 2),
        (CLIENT, 9),
        (turn.SERVICE_LINK, 0),
        (turn.LINK_IN, 0),
    ]
    t = tables(connections=connections(*kinds), ready=[0] * 8)
    t.words[at.LAST_CLIENT] = 3
    before = plain(turn._comes_before)
    order = sorted(range(6), key=lambda one: sum(before(t, other, one) for other in range(6) if other != one))

    assert [kinds[descriptor][1] for descriptor in order] == [0, 2, 7, 9, 3, 0]


# ---- the recording


@pytest.fixture
def appended(monkeypatch):
    """Appends a frame of 96 bytes with a checksum; ``begun`` is what the device is asked to begin with."""
    for name in ("copy_bytes", "store", "address_of"):
        monkeypatch.setattr(recorder, name, lambda *_: 0)
    monkeypatch.setattr(recorder, "get_i32", lambda *_: 96)
    monkeypatch.setattr(recorder, "align_frame", lambda length: length)
    monkeypatch.setattr(recorder, "write_file", lambda *_: True)
    t = tables(recording=[0] * of_recording.RECORDING_WORDS, proof=[], log=None, recorded=None)
    t.words[at.PROOF], t.words[at.CHECKSUM], t.words[at.SYNC_LEVEL] = -1, 1, 1
    t.words[at.PREPARE_AT] = at.NEVER
    t.begun = []
    monkeypatch.setattr(
        recorder, "sync_range", lambda t, file, offset, length, how: t.begun.append((offset, length)) or True
    )
    t.append = lambda: plain(recorder.append)(t, 0, 96)
    return t


def test_of_two_frames_before_a_sync_none_is_single(appended):
    """A frame that is synced alone needs no slot in the proof file, two do."""
    assert appended.append() and appended.recording[of_recording.IS_SINGLE_FRAME]
    assert appended.append() and not appended.recording[of_recording.IS_SINGLE_FRAME]


def test_the_device_begins_within_the_segment_where_the_one_before_was_not_begun(appended):
    recording, base = appended.recording, 8 * of_recording.WRITE_BACK_BYTES
    recording[of_recording.SEGMENT_BASE] = recording[of_recording.APPEND_POSITION] = base
    recording[of_recording.WRITTEN_BACK] = base - of_recording.WRITE_BACK_BYTES
    assert appended.append()

    assert appended.begun == [(0, 96)]
    assert recording[of_recording.WRITTEN_BACK] == base + 96


def test_what_would_fill_the_segment_is_left_to_python():
    t = tables(recording=[0] * of_recording.RECORDING_WORDS, recorded=SimpleNamespace(size=4096))
    t.words[at.SEGMENT_LENGTH] = 1024
    t.recording[of_recording.APPEND_POSITION] = 928
    assert not plain(recorder.has_room)(t, 96)
    assert plain(recorder.has_room)(t, 64)


# ---- clients


def test_the_connection_of_a_client_is_not_the_link_of_a_member_with_its_number(monkeypatch):
    monkeypatch.setattr(egress, "_is_of", plain(egress._is_of))
    t = tables(connections=connections((LINK_OUT, 2), (CLIENT, 5), (CLIENT, 2)))
    t.by_connection = [0] * INDEX_LENGTH  # whose places others have taken since
    descriptor_of = plain(egress.descriptor_of)

    assert [descriptor_of(t, connection_id) for connection_id in (2, 5, 9, -1)] == [2, 1, -1, -1]


# ---- a service in a process of its own


@pytest.fixture
def service(monkeypatch):
    """Its tables, with the positions at which it was given more of the log."""
    t = tables(limits=[0] * 64, counters=[0] * 8, received=None)
    t.given = []
    monkeypatch.setattr(remote, "send_limit", lambda t: t.given.append(t.words[at.COMMIT_POSITION]))
    t.words[at.LIMIT_DUE_NS], t.words[at.NOW_NS] = at.NEVER, 1_000
    t.words[at.COMMIT_POSITION] = 640
    return t


def test_a_followers_process_is_given_the_log_of_5_ms_or_64_kib_at_once(service):
    service.words[at.ROLE] = at.FOLLOWER_ROLE
    plain(remote.give_log)(service)
    assert service.words[at.LIMIT_DUE_NS] == 1_000 + 5_000_000
    service.words[at.NOW_NS] = 2_000
    plain(remote.give_log)(service)
    assert service.words[at.LIMIT_DUE_NS] == 1_000 + 5_000_000, "from the first of it on"
    assert service.given == []

    service.words[at.COMMIT_POSITION] = 65_536
    plain(remote.give_log)(service)
    assert service.given == [65_536]


def test_a_leaders_process_is_given_it_at_once(service):
    service.words[at.ROLE] = at.LEADER_ROLE
    plain(remote.give_log)(service)
    assert service.given == [640]


def test_answers_count_for_what_follows_the_position_that_a_service_names(service, monkeypatch):
    monkeypatch.setattr(remote, "get_i64", lambda buffer, at: {0: 320, 8: 7, 16: 1}[at])
    service.words[at.SERVICE_COUNTER], service.words[at.MAX_CYCLE_COUNTER] = 3, 4
    service.words[at.CYCLES_EXCEEDED_COUNTER] = 5
    service.limits[SERVED], service.limits[LIMIT], service.limits[ANSWERED] = 96, 640, 12
    take_position = plain(remote._take_position)

    assert take_position(service, 0)
    assert (service.limits[SERVED], service.limits[ANSWERED]) == (320, 0)
    assert service.counters[3:6] == [320, 7, 1]
    service.limits[ANSWERED] = 2
    assert take_position(service, 0) and service.limits[ANSWERED] == 2, "it is at the same position"
    service.limits[LIMIT] = 288
    assert not take_position(service, 0), "beyond what it was given"
    service.limits[LIMIT], service.limits[SERVED] = 640, 352
    assert not take_position(service, 0), "before what it has said"


# ---- measured


def test_a_duration_is_counted_in_its_bucket_and_added_to_the_sum():
    t = tables(counters=[0] * 1024)
    words, buckets = measuring.COUNTER_WORDS, measuring.BUCKETS_NS
    for duration_ns in (buckets[0], buckets[0] + 1, buckets[-1] + 1):
        plain(measuring.measure)(t, 0, duration_ns)

    counted = {place: value for place, value in enumerate(t.counters) if value}
    total = 2 * buckets[0] + buckets[-1] + 2
    assert counted == {0: 1, words: 1, len(buckets) * words: 1, (len(buckets) + 1) * words: total}
