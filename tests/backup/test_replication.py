"""A member fetches the snapshot of a standby, and starts from it."""

from types import SimpleNamespace

import pytest

from cluster.errors import ClusterError
from cluster.protocol.backup import StandbySnapshot, StandbySnapshotRecording
from cluster.protocol.enums import NodeControlToggle
from cluster.protocol.recording_log import STANDBY_SNAPSHOT
from cluster.protocol.versions import CLIENT_PROTOCOL_VERSION
from tests.backup.served_log import ServedLog
from tests.backup.standby_in_memory import StandbyInMemory, records_at, take_standby_snapshot
from tests.member.asker import Asker
from tests.member.cluster_steps import a_busy_cluster, entries_of, send, take_snapshot
from tests.member.in_memory.cluster import MS

BLOCK_BYTES = 4096


class Archives:
    """What members fetch from, by endpoint: the directories of standbys. ``spoil`` changes the frames."""

    def __init__(self, **standbys):
        self.standbys = standbys
        self.asked = []
        self.spoil = lambda frames: frames

    def __call__(self, endpoint, recording_ids):
        self.asked.append(endpoint)
        standby = self.standbys.get(endpoint.partition(":")[0])
        if standby is None:
            raise ClusterError(f"{endpoint}: nobody is there")
        return Fetched(standby, recording_ids, self)


class Fetched:
    def __init__(self, standby, recording_ids, archives):
        host = SimpleNamespace(
            disk=standby.disk, world=standby.cluster.world, clock=standby.cluster.members[0].clock
        )
        log = ServedLog(host, standby.path, standby.files, cluster_id=0)
        self._answers = (
            archives.spoil(answer) for i in recording_ids for answer in log.read_recording(i, BLOCK_BYTES)
        )

    def poll(self):
        return next(self._answers, None)

    def close(self):
        pass


def announce(cluster, member, standby, endpoint, position):
    [entries] = [e for e in standby.directory.recording_log.snapshot_sets(1) if e[0].log_position == position]
    recordings = tuple(
        StandbySnapshotRecording(
            e.recording_id,
            e.leadership_term_id,
            e.term_base_log_position,
            e.log_position,
            e.timestamp,
            e.service_id,
            endpoint,
        )
        for e in entries
    )
    asker = Asker(member).asks(StandbySnapshot(1, CLIENT_PROTOCOL_VERSION, 108, recordings, "standby"))
    cluster.run(100 * MS)
    assert (asker.answers, asker.is_closed) == ([], True)


def replicate(cluster, member):
    """Returns how many snapshots the member has got by it."""
    before = member.counters.snapshot_count.get()
    member.counters.node_control_toggle.set(NodeControlToggle.REPLICATE_STANDBY_SNAPSHOT)
    cluster.run_until(lambda: member.counters.node_control_toggle.get() == NodeControlToggle.NEUTRAL)
    return member.counters.snapshot_count.get() - before


@pytest.fixture
def world():
    cluster = a_busy_cluster(accept_standby_snapshots=True)
    standby = StandbyInMemory(cluster)
    cluster.clients[0].send(b"timer 9")
    cluster.await_settled()
    standby.await_services()
    cluster.archives = Archives(one=standby)
    return cluster, standby


@pytest.mark.conformance("C-310", "C-314")
def test_a_member_has_the_standbys_snapshot_as_its_own_and_starts_from_it(world):
    cluster, standby = world
    member = cluster.followers[0]
    position = take_standby_snapshot(standby)
    announce(cluster, member, standby, "nobody:1", position)
    announce(cluster, member, standby, "one:1", position)
    assert replicate(cluster, member) == 1
    assert cluster.archives.asked == ["nobody:1", "one:1"], "the first cannot be reached"
    assert entries_of(member) == [(0, position), (-1, position)]
    archive = member.life.consensus_module.parts.snapshots.archive
    assert records_at(member.recording_log, archive, position) == standby.module_snapshot(position)
    assert replicate(cluster, member) == 0, "it has it"
    send(cluster, 5)
    member.kill()
    member.start()
    assert member.processed_position == position
    cluster.await_level()
    assert member.service.chain == cluster.leader.service.chain
    cluster.check()


@pytest.mark.conformance("C-314")
def test_a_start_fetches_a_newer_snapshot_first_and_begins_with_it(world):
    cluster, standby = world
    member = cluster.followers[0]
    position = take_standby_snapshot(standby)
    announce(cluster, member, standby, "one:1", position)
    send(cluster, 5)
    member.kill()
    member.start()
    cluster.run_until(lambda: member.is_following)
    assert cluster.archives.asked == ["one:1"]
    assert entries_of(member) == [(0, position), (-1, position)]
    cluster.await_level()
    assert member.service.chain == cluster.leader.service.chain
    member.kill()
    member.start()
    assert member.processed_position == position, "it has it"
    assert cluster.archives.asked == ["one:1"]
    cluster.await_level()
    cluster.check()


def test_a_start_goes_on_without_a_standby_that_is_gone_or_has_nothing_whole(world):
    cluster, standby = world
    member = cluster.followers[0]
    position = take_standby_snapshot(standby)
    announce(cluster, member, standby, "nobody:1", position)
    announce(cluster, member, standby, "one:1", position)
    cluster.archives.spoil = lambda answer: answer[:-64] if hasattr(answer, "tobytes") else answer
    recordings = len(member.archive.recordings())
    member.kill()
    member.start()
    cluster.run_until(lambda: member.is_following)
    assert cluster.archives.asked == ["nobody:1", "one:1"]
    assert entries_of(member) == [] and len(member.archive.recordings()) == recordings
    assert member.counters.errors.get() == 2
    cluster.await_level()
    cluster.check()


def test_a_member_that_does_not_accept_them_any_more_starts_with_what_it_has(world):
    cluster, standby = world
    member = cluster.followers[0]
    announce(cluster, member, standby, "one:1", take_standby_snapshot(standby))
    member.kill()
    cluster._settings["accept_standby_snapshots"] = False
    member.start()
    cluster.run_until(lambda: member.is_following)
    assert cluster.archives.asked == []


def test_what_is_not_whole_leaves_nothing(world):
    cluster, standby = world
    member = cluster.leader
    position = take_standby_snapshot(standby)
    announce(cluster, member, standby, "one:1", position)
    recordings = len(member.archive.recordings())

    def flip(answer):
        if hasattr(answer, "tobytes"):
            answer = answer.copy()
            answer[-1] ^= 1
        return answer

    def shorten(answer):
        return answer[:-64] if hasattr(answer, "tobytes") else answer

    def retell(answer):
        is_status = hasattr(answer, "stream_id")
        return answer.replace(stream_id=100) if is_status else answer

    for spoil in (flip, shorten, retell):
        cluster.archives.spoil = spoil
        errors = member.counters.errors.get()
        assert replicate(cluster, member) == 0
        assert member.counters.errors.get() > errors
        assert entries_of(member) == []
        assert len(member.archive.recordings()) == recordings
    cluster.archives.spoil = lambda answer: answer
    assert replicate(cluster, member) == 1


def test_an_older_snapshot_than_the_own_is_not_fetched(world):
    cluster, standby = world
    position = take_standby_snapshot(standby)
    announce(cluster, cluster.leader, standby, "one:1", position)
    send(cluster, 5)
    take_snapshot(cluster)
    assert replicate(cluster, cluster.leader) == 0
    assert cluster.archives.asked == []
    assert [e for e in cluster.leader.recording_log.entries if e.entry_type is STANDBY_SNAPSHOT]
