"""Which cluster a member is of, and what of its log is whole: the parts that keep it, without a member."""

from contextlib import nullcontext
from random import Random
from types import SimpleNamespace

import pytest

from cluster.archive.identity_file import FoundIdentity
from cluster.consensus.context import NULL_POSITION, ConsensusModuleContext
from cluster.errors import OtherMembers
from cluster.member.disk import identity_keeper, promise_keeper
from cluster.member.disk.identity_keeper import IdentityKeeper
from cluster.member.disk.promise_keeper import PromiseKeeper
from cluster.member.disk.repair import Repair
from cluster.protocol import streams
from cluster.protocol.identity import ANY_MEMBER_ID, ClusterIdentity
from cluster.protocol.link import PromiseState, PromiseStatement
from cluster.protocol.log import NewLeadershipTermEvent
from cluster.protocol.recording_log import TERM, RecordingLogEntry
from cluster.transport.message_frames import message_frame

CONTEXT = ConsensusModuleContext(member_id=0, member_ids=(0, 1, 2))
UNKNOWN = ClusterIdentity(7).with_members(0, CONTEXT.member_ids)
KNOWN = UNKNOWN.replace(first_term_timestamp=1_000, first_log_session_id=5)


@pytest.fixture
def written(monkeypatch):
    """What is written to both files, one after the other."""
    written = []
    monkeypatch.setattr(identity_keeper, "write_identity", lambda *given: written.append(given[-1]))
    return written


@pytest.fixture
def keeper(written, monkeypatch):
    archive = SimpleNamespace(files=None, directory="archive", find_recording=lambda id_: None)
    recording_log = SimpleNamespace(path="cluster/recording.log", find_last_term=lambda: None)
    files = SimpleNamespace(archive=archive, recording_log=recording_log)
    return IdentityKeeper(CONTEXT, files, print)


def test_where_the_log_began_is_taken_from_others_by_who_does_not_know_it_and_by_nobody_else(keeper, written):
    assert keeper.adopt(UNKNOWN) and keeper.identity == UNKNOWN
    assert not keeper.adopt(UNKNOWN)
    assert keeper.adopt(KNOWN) and keeper.identity == KNOWN
    assert not keeper.adopt(KNOWN)
    assert not keeper.adopt(UNKNOWN)
    assert written == [UNKNOWN, KNOWN]


@pytest.mark.parametrize(("end", "begun"), [(None, UNKNOWN), (0, UNKNOWN), (96, KNOWN)])
def test_a_log_that_is_empty_has_not_begun_whatever_its_directory_had(
    keeper, written, monkeypatch, end, begun
):
    """It is filled again, or begins with a snapshot; the same cluster and members it stays."""
    found = FoundIdentity(KNOWN, "identity.dat", (), is_in_both=True)
    stored = None if end is None else SimpleNamespace(append_position=end)
    monkeypatch.setattr(identity_keeper, "read_identity", lambda *_: found)
    monkeypatch.setattr(identity_keeper, "_first_event", lambda stored: None)
    monkeypatch.setattr(keeper, "_stored_log", lambda: nullcontext(stored))

    assert keeper.begin(None, has_promises=True) is False
    assert keeper.identity == begun


@pytest.mark.parametrize("first_session_id", [5, 6])
def test_the_log_that_a_member_writes_is_compared_by_what_it_has_so_far(keeper, written, first_session_id):
    """The catalog does not say yet how far that is."""
    event = NewLeadershipTermEvent(0, 96, 1_000, 0, 0, first_session_id)
    recording = SimpleNamespace(first_frame=lambda: message_frame(event, streams.LOG))
    archive = keeper._files.archive
    archive.find_recording = lambda id_: SimpleNamespace(recording_id=id_, stop_position=NULL_POSITION)
    archive.recording = {3: recording}.__getitem__
    keeper._files.recording_log.find_last_term = lambda: SimpleNamespace(recording_id=3)

    if first_session_id == KNOWN.first_log_session_id:
        assert keeper.adopt(KNOWN)
    else:
        with pytest.raises(
            OtherMembers, match="session 5 at 1000, but the one in archive began with session 6"
        ):
            keeper.adopt(KNOWN)


@pytest.mark.parametrize("identity", [None, ClusterIdentity(7)], ids=["older", "restored"])
def test_a_directory_without_a_list_that_speaks_of_others_is_not_started_alone(keeper, monkeypatch, identity):
    found = FoundIdentity(identity, "identity.dat", (), is_in_both=True)
    monkeypatch.setattr(identity_keeper, "read_identity", lambda *_: found)
    monkeypatch.setattr(keeper, "_context", ConsensusModuleContext(member_id=0, member_ids=(0,)))

    with pytest.raises(OtherMembers, match="is of several members"):
        keeper.begin(None, has_promises=True)


def test_a_directory_that_was_made_for_one_member_is_not_started_with_others(keeper, monkeypatch):
    one = ClusterIdentity(0).with_members(0, (ANY_MEMBER_ID,))
    found = FoundIdentity(one, "identity.dat", (), is_in_both=True)
    monkeypatch.setattr(identity_keeper, "read_identity", lambda *_: found)

    with pytest.raises(OtherMembers, match="expected one member"):
        keeper.begin(None, has_promises=False)


def test_where_the_log_began_is_learned_once_and_not_before_it_is_committed(keeper, written, monkeypatch):
    event = SimpleNamespace(timestamp=1_000, log_session_id=5)
    monkeypatch.setattr(identity_keeper, "_first_event", lambda stored: event)
    keeper.identity = UNKNOWN
    assert not keeper.learn_first_term(SimpleNamespace(), 0)

    assert keeper.learn_first_term(SimpleNamespace(), 96)
    assert not keeper.learn_first_term(SimpleNamespace(), 192)

    assert written == [KNOWN]


def test_who_turns_out_to_be_of_another_cluster_counts_no_more_and_all_hear_what_this_one_is(monkeypatch):
    dropped, sent, unrelated = [], [], {}
    kept = PromiseKeeper.__new__(PromiseKeeper)
    kept._peers = SimpleNamespace(
        ids=(1, 2), links=SimpleNamespace(send=lambda to, frame: sent.append((to, frame)))
    )
    kept._identity = SimpleNamespace(difference=lambda told: "another generation" if told == "x" else None)
    kept._unrelated = SimpleNamespace(add=unrelated.__setitem__)
    kept.promises = SimpleNamespace(statement_of={1: "x", 2: "y"}.get, on_link_down=dropped.append)
    monkeypatch.setattr(promise_keeper.PromiseKeeper, "frame", lambda self: b"statement")
    kept._on_identity()

    assert unrelated == {1: "another generation"}
    assert dropped == [1]
    assert sent == [(1, b"statement"), (2, b"statement")]


@pytest.mark.parametrize("end", [None, 960])
def test_who_knows_how_far_its_damaged_log_was_acknowledged_has_its_promises(end):
    kept = PromiseKeeper.__new__(PromiseKeeper)
    kept._context, kept._random, kept._is_identity_lost = CONTEXT, Random(1), False
    kept._repair = SimpleNamespace(is_needed=True, acknowledged_end=end)
    kept._files = SimpleNamespace(node_state=SimpleNamespace(candidate_term_id=3))
    kept._identity = SimpleNamespace(stated=(), settle=lambda is_new: None)
    kept._peers = SimpleNamespace(ids=())
    kept._show_waiting = lambda: None

    kept._recall(PromiseStatement(7, 3, -1, PromiseState.KEPT, False, ()), is_damaged=False)

    assert kept.promises.has_say is (end is not None)


class Archive:
    """Of a log without damage that ends at 960, and the order in which it was asked."""

    def __init__(self):
        self.asked = []

    def find_damage(self, recording_id, from_position):
        self.asked.append("damage")

    def recording(self, recording_id):
        return SimpleNamespace(append_position=960)

    def forget_files(self, recording_id):
        self.asked.append("forget")


@pytest.fixture
def repair():
    term = RecordingLogEntry(0, 1, 960, NULL_POSITION, 0, -1, TERM)
    log = SimpleNamespace(
        path="cluster/recording.log", find_last_term=lambda: term, latest_snapshot=lambda: None
    )
    files = SimpleNamespace(archive=Archive(), recording_log=log)
    files.archive.files = None
    return Repair(CONTEXT, files, None, print, distrusts_log=False)


@pytest.mark.parametrize(("base", "is_whole"), [(928, True), (960, True), (992, False)])
def test_a_log_may_end_where_its_last_term_begins_and_not_before(repair, base, is_whole):
    damage = repair._find_damage(RecordingLogEntry(0, 1, base, NULL_POSITION, 0, -1, TERM))
    assert (damage is None) is is_whole


def test_a_repaired_log_is_judged_by_its_new_files(repair):
    repair.log_repair = SimpleNamespace(do_work=lambda now_ns: None, is_over=True)
    assert repair.repair_log(0)
    assert repair._files.archive.asked == ["forget", "damage"]
