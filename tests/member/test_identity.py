"""A directory knows which cluster it is of: no list of members that is configured makes it one of another."""

import pytest

from cluster.archive.identity_file import read_identity, write_identity
from cluster.member.disk.data_loss import accept_data_loss
from cluster.protocol.identity import ClusterIdentity
from tests.member.cluster_steps import a_cluster_with_an_entry
from tests.member.directories import (
    ARCHIVE,
    CLUSTER,
    FILES,
    PROMISES,
    identity_of,
    make_older,
    starts,
    stopped,
)
from tests.member.in_memory.cluster import LONG_NS, QUICK, SECOND, SimulatedCluster


def goes_on(cluster, *member_ids):
    """These members, and no others, have a leader, and commit."""
    leader = cluster.await_leader(60 * SECOND)
    assert leader.member_id in member_ids
    client = cluster.clients[0]
    client.send(b"0:goes on")
    cluster.await_settled()


def test_all_members_know_the_same_of_their_cluster_once_its_first_entry_is_committed():
    cluster = stopped()
    first, *others = (identity_of(member) for member in cluster.members)
    assert first.member_ids == (0, 1, 2) and first.generation == 0 and first.cluster_id == 0
    assert first.first_term_timestamp is not None and first.first_log_session_id is not None
    assert others == [first, first]
    starts(cluster, *cluster.members)
    goes_on(cluster, 0, 1, 2)
    cluster.check_promises()


def test_a_member_that_is_started_alone_does_not_lead_but_ends_and_says_both_lists():
    cluster = stopped()
    one = cluster.members[0]
    cluster.lists[0] = (0,)
    starts(cluster, one)
    assert not one.is_running
    assert one.death == (
        f"OtherMembers: {FILES[0]}: generation 0, members 0, 1, 2, but members 0 are configured: "
        "expected members 0, 1, 2"
    )
    assert one.process.end.exit_status == 2

    del cluster.lists[0]
    starts(cluster, *cluster.members)
    goes_on(cluster, 0, 1, 2)
    cluster.check()


def test_five_are_not_shrunk_to_three_by_the_two_that_have_missed_what_was_committed():
    cluster, client = a_cluster_with_an_entry(5)
    stale = cluster.members[:2]
    for member in stale:
        member.kill()
    client.send(b"0:on three")
    cluster.await_leader(60 * SECOND)
    cluster.await_settled()
    for member in cluster.members[2:]:
        member.stop()
    for member in stale:
        cluster.lists[member.member_id] = (0, 1, 2)
    starts(cluster, *stale)
    assert [member.death.partition(":")[0] for member in stale] == ["OtherMembers"] * 2


def test_an_older_directory_takes_the_list_of_its_first_start_and_says_so_once():
    cluster = stopped()
    for member in cluster.members:
        make_older(member)
    starts(cluster, *cluster.members)
    goes_on(cluster, 0, 1, 2)
    line = "from now on this directory is of a cluster of members 0, 1, 2"
    assert [event for event in cluster.events if line in event] == [f"member {i}: {line}" for i in range(3)]
    assert all(identity_of(member).first_term_timestamp is not None for member in cluster.members)


@pytest.mark.parametrize("has_promises", [True, False])
def test_an_older_directory_of_several_members_is_not_started_alone(has_promises):
    cluster = stopped()
    [leader_id] = cluster.leader_of_term.values()
    one = next(member for member in cluster.members if member.member_id != leader_id)
    make_older(one)
    if not has_promises:
        one.files.unlink(PROMISES)
    cluster.lists[one.member_id] = (one.member_id,)
    starts(cluster, one)
    assert one.death.startswith("OtherMembers: ")
    what = "promises.dat is of several members" if has_promises else f"member {leader_id} led term 0"
    assert what in one.death


def test_an_older_directory_of_one_member_that_led_all_its_terms_goes_on():
    cluster = stopped(1)
    make_older(cluster.members[0])
    starts(cluster, cluster.members[0])
    goes_on(cluster, 0)
    assert identity_of(cluster.members[0]).member_ids == (0,)


@pytest.mark.parametrize("is_damaged", [True, False])
@pytest.mark.parametrize("lost", [0, 1])
def test_one_file_is_enough_and_both_are_there_again(lost, is_damaged):
    cluster = stopped()
    one = cluster.members[1]
    if is_damaged:
        one.files.open(FILES[lost], write=True).pwrite(b"\xff", 3)
    else:
        one.files.unlink(FILES[lost])
    before = identity_of(one)
    starts(cluster, *cluster.members)
    assert any("its checksum is not that of its bytes" in event for event in cluster.events) == is_damaged
    assert read_identity(one.files, CLUSTER, ARCHIVE) == (before, FILES[0], (), True)
    goes_on(cluster, 0, 1, 2)


@pytest.mark.parametrize("is_damaged", [True, False])
def test_with_both_files_lost_a_member_is_without_its_promises_and_takes_them_from_the_others(is_damaged):
    cluster = stopped()
    one, two, three = cluster.members
    before = identity_of(one)
    for path in FILES:
        if is_damaged:
            one.files.open(path, write=True).pwrite(b"\xff", 3)
        else:
            one.files.unlink(path)
    starts(cluster, one, two, for_ns=LONG_NS)
    assert cluster.leader is None
    assert any(line.startswith("member 0: waits for members 1, 2: ") for line in cluster.events)
    three.start()
    goes_on(cluster, 0, 1, 2)
    cluster.await_level(60 * SECOND)
    assert identity_of(one) == before


def test_where_an_operator_decides_a_member_that_lost_both_files_is_of_the_cluster_that_it_was_of():
    cluster = stopped()
    for member in cluster.members:
        write_identity(member.files, CLUSTER, ARCHIVE, identity_of(member).replace(generation=9))
    starts(cluster, *cluster.members)
    goes_on(cluster, 0, 1, 2)
    for member in cluster.members:
        member.stop()
    one, two, _ = cluster.members
    before = identity_of(one)
    for path in FILES:
        one.files.unlink(path)
    starts(cluster, one)
    assert not one.has_say
    one.stop()
    accept_data_loss(one.files, CLUSTER, 7)
    starts(cluster, one, two)
    goes_on(cluster, 0, 1)
    assert identity_of(one) == before


def test_with_both_files_lost_no_member_is_alone():
    cluster = stopped()
    one = cluster.members[0]
    for path in FILES:
        one.files.open(path, write=True).pwrite(b"\xff", 3)
    one.files.unlink(PROMISES)
    cluster.lists[0] = (0,)
    starts(cluster, one)
    assert "its identity.dat is lost, but members has 0 alone" in one.death


def test_a_wiped_member_takes_the_identity_of_the_others_and_ends_if_it_is_configured_for_another():
    cluster = stopped()
    one, two, _ = cluster.members
    expected = identity_of(two)
    one.wipe()
    starts(cluster, *cluster.members)
    goes_on(cluster, 0, 1, 2)
    cluster.await_level(60 * SECOND)
    assert identity_of(one) == expected

    one.stop()
    one.wipe()
    cluster.lists[0] = (0, 1, 2, 3)
    starts(cluster, one)
    assert "the others: generation 0, members 0, 1, 2, but members 0, 1, 2, 3 are configured" in one.death


def test_a_directory_of_another_cluster_is_counted_by_nobody_and_both_sides_say_so_once():
    cluster = stopped()
    other = stopped(seed=2).members[2]
    two = cluster.members[2]
    held = other.backup()
    two.restore(held)
    starts(cluster, *cluster.members)
    goes_on(cluster, 0, 1)
    assert two.leader_member_id < 0
    assert {path: data for path, data in two.backup().items() if path.endswith(".rec")} == {
        path: data for path, data in held.items() if path.endswith(".rec")
    }
    lines = [event for event in cluster.events if "is not counted: its log began with session" in event]
    assert len(lines) == 4 and len(set(lines)) == 4  # of 0 and 1 about 2, of 2 about 0 and 1

    cluster.members[1].kill()
    cluster.run(LONG_NS)
    assert cluster.leader is None


def test_a_member_of_another_generation_is_counted_by_nobody():
    cluster = stopped()
    two = cluster.members[2]
    write_identity(two.files, CLUSTER, ARCHIVE, identity_of(two).replace(generation=7))
    starts(cluster, *cluster.members)
    goes_on(cluster, 0, 1)
    assert two.leader_member_id < 0
    assert any(
        "member 2 is not counted: it is of generation 7, expected 0" in event for event in cluster.events
    )
    assert any(
        "member 0 is not counted: it is of generation 0, expected 7" in event for event in cluster.events
    )


def test_the_log_of_another_cluster_under_ones_own_identity_is_refused():
    cluster = stopped()
    other = stopped(seed=2).members[2].backup()
    two = cluster.members[2]
    own = {path: two.backup()[path] for path in FILES}
    two.restore(other | own)
    starts(cluster, two)
    assert two.death.startswith("OtherMembers") and "but the one in" in two.death


def test_what_was_never_committed_is_no_identity():
    """A leader that dies with the first term in its log alone is one of the others afterwards."""
    cluster = SimulatedCluster(3, 3, **QUICK)
    cluster.run_until(lambda: any(member.is_publishing for member in cluster.members))
    leader = next(member for member in cluster.members if member.is_publishing)
    for other in cluster.members:
        if other is not leader:
            cluster.links.block(leader.member_id, other.member_id)
    cluster.run(SECOND)
    leader.kill()
    cluster.add_client()
    cluster.await_leader(60 * SECOND)
    cluster.links.heal()
    leader.start()
    goes_on(cluster, 0, 1, 2)
    cluster.await_level(60 * SECOND)
    cluster.check()
    cluster.run_until(lambda: len({identity_of(member) for member in cluster.members}) == 1)


def test_files_of_a_restored_directory_take_what_its_first_start_says():
    cluster = stopped()
    for member in cluster.members:
        first = identity_of(member)
        restored = ClusterIdentity(9, first.first_term_timestamp, first.first_log_session_id)
        write_identity(member.files, CLUSTER, ARCHIVE, restored)
    starts(cluster, *cluster.members)
    goes_on(cluster, 0, 1, 2)
    assert {identity_of(member).generation for member in cluster.members} == {9}
    assert identity_of(cluster.members[0]).member_ids == (0, 1, 2)


def formatted(*generations):
    """Members that never ran, over directories that are empty but for what `cluster format` writes."""
    cluster = SimulatedCluster(len(generations), 1)
    for member, generation in zip(cluster.members, generations, strict=True):
        member.kill()
        member.wipe()
        identity = ClusterIdentity(generation).with_members(0, tuple(range(cluster.member_count)))
        for folder in (CLUSTER, ARCHIVE):
            member.files.make_directory(folder)
        write_identity(member.files, CLUSTER, ARCHIVE, identity)
    starts(cluster, *cluster.members, for_ns=30 * SECOND)
    return cluster


def test_formatted_members_begin_a_cluster_and_an_empty_directory_is_taken_into_it():
    cluster = formatted(5, 5, 5)
    cluster.add_client()
    goes_on(cluster, 0, 1, 2)
    lost = cluster.followers[0]
    lost.stop()
    lost.wipe()
    starts(cluster, lost, for_ns=20 * SECOND)
    assert identity_of(lost).generation == 5 and lost.is_running
    cluster.await_level()


def test_a_member_that_was_formatted_for_another_cluster_is_counted_by_nobody():
    cluster = formatted(5, 5, 9)
    line = "member 2 is not counted: it is of generation 9, expected 5"
    assert [event for event in cluster.events if line in event]
    assert cluster.leader is None, "a new cluster needs all members that are configured"
