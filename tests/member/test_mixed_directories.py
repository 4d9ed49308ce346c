"""Members over directories of every kind, side by side: a majority of one generation goes on, nobody else."""

from itertools import combinations_with_replacement

import pytest

from cluster.archive.identity_file import IDENTITY_FILE_NAME, write_identity
from cluster.protocol.identity import ClusterIdentity
from tests.member.directories import ARCHIVE, CLUSTER, identity_of, make_older, starts, stopped
from tests.member.in_memory.cluster import SECOND
from tests.member.in_memory.member import log_bytes

OF_AERON = ("archive.catalog", "recording.log", "node-state.dat")


def keep_only(member, *names):
    for path in list(member.backup()):
        if not path.endswith((".rec", *names)):
            member.files.unlink(path)


def make_restored(member, older):
    """As ``cluster tool restore`` leaves it: an older log, a generation of its own, no list of members."""
    member.restore(older[member.member_id])
    first = identity_of(member)
    keep_only(member, *OF_AERON, IDENTITY_FILE_NAME)
    restored = ClusterIdentity(9, first.first_term_timestamp, first.first_log_session_id)
    write_identity(member.files, CLUSTER, ARCHIVE, restored)


# What a directory is made into of, and of which generation it is then; None: of nobody's here.
KINDS = {
    "current": (lambda member, older, others: None, 5),
    "of the older generation": (lambda member, older, others: member.restore(older[member.member_id]), 0),
    "without an identity": (lambda member, older, others: make_older(member), 0),
    "of a real cluster": (lambda member, older, others: keep_only(member, *OF_AERON), 0),
    "restored": (lambda member, older, others: make_restored(member, older), 9),
    "copied from another": (lambda member, older, others: member.restore(others), None),
}
QUICK_ONE = ("current", "of the older generation", "without an identity")
MIXTURES = [kinds for kinds in combinations_with_replacement(KINDS, 3) if kinds != QUICK_ONE]


@pytest.mark.parametrize(
    "kinds", [QUICK_ONE, *(pytest.param(kinds, marks=pytest.mark.slow) for kinds in MIXTURES)]
)
def test_only_a_majority_of_one_generation_goes_on(kinds):
    cluster = stopped()
    older = [member.backup() for member in cluster.members]
    for member in cluster.members:
        write_identity(member.files, CLUSTER, ARCHIVE, identity_of(member).replace(generation=5))
    starts(cluster, *cluster.members)
    cluster.await_leader()
    cluster.clients[0].send(b"0:in generation 5")
    cluster.await_settled()
    cluster.await_level()
    for member in cluster.members:
        member.stop()
    current = [member.backup() for member in cluster.members]
    for member, kind in zip(cluster.members, kinds, strict=True):
        KINDS[kind][0](member, older, current[(member.member_id + 1) % 3])
    cluster.leader_of_term.clear()  # a generation has terms and entries of its own
    cluster._chain_at.clear()
    generations = [KINDS[kind][1] for kind in kinds]
    together = {
        generation
        for generation in generations
        if generation is not None and generations.count(generation) >= 2
    }
    client = cluster.add_client()

    for _ in range(2):
        had = {
            m.member_id: log_bytes(m, 0, m.commit_position)
            for m in cluster.members
            if m.recording is not None
        }
        starts(cluster, *(member for member in cluster.members if not member.is_running), for_ns=8 * SECOND)
        client.send(b"1:goes on?")
        cluster.run(2 * SECOND)
        part = [m for m in cluster.members if m.is_running and (m.is_leading or m.is_following)]
        assert {generations[member.member_id] for member in part} == together
        assert len(part) == sum(generation in together for generation in generations)
        assert len({log_bytes(m, 0, min(p.commit_position for p in part)) for m in part}) <= 1
        for member in cluster.members:
            if member.recording is not None and (before := had.get(member.member_id)):
                assert log_bytes(member, 0, len(before)) == before
        for member in part:
            if member.is_leading:
                member.kill()
