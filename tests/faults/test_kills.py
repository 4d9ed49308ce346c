"""SIGKILL under load: the leader again and again, followers, all at once. Each comes back by its own file."""

from __future__ import annotations

import time

import pytest

from benchmarks.load import Load
from benchmarks.real_members import await_that
from cluster.protocol.enums import ElectionState
from tests.faults.conftest import check_everything

pytestmark = pytest.mark.faults

GAP_MAX_S = 6.0  # half of the ten seconds that a silent leader is given; quiet machines need about one


def test_each_leader_that_is_killed_is_replaced_within_seconds_and_nothing_is_lost_or_doubled(members_of):
    members = members_of()
    members.start()
    with Load(members.tcp, messages_per_s=2_000) as load:
        for _ in range(4):
            load.await_progress(members.tell)
            leader = members.await_leader()
            killed_at = time.monotonic()
            members.kill(leader)
            members.await_leader(other_than=leader)
            load.await_progress(members.tell)
            gap = load.longest_gap(killed_at, time.monotonic())
            assert gap < GAP_MAX_S, f"no commit for {gap:.1f} s\n{members.tell()}"
            members.start(leader)
            members.await_level()
        check_everything(members, load)
        assert len(load.sessions) == 1, f"the session outlives its leaders: {load.sessions}"


def test_a_follower_that_is_killed_again_and_again_costs_no_session_and_is_brought_level(members_of):
    members = members_of()
    members.start()
    with Load(members.tcp, messages_per_s=2_000) as load:
        leader = members.await_leader()
        follower = (leader + 1) % 3
        for _ in range(4):
            load.await_progress(members.tell)
            members.kill(follower)
            load.await_progress(members.tell)
            members.start(follower)  # and the next kill finds it where it has just got to
        members.await_level()
        assert members.leader() == leader, "a follower's death is no reason for an election"
        check_everything(members, load)
        assert len(load.sessions) == 1


def test_all_members_killed_at_once_come_back_with_all_that_was_acknowledged(members_of):
    members = members_of()
    members.start()
    with Load(members.tcp, messages_per_s=2_000) as load:
        for order in ((0, 1, 2), (2, 1, 0)):
            load.await_progress(members.tell)
            members.kill(*members.ids)
            members.start(*order)
            load.await_progress(members.tell)
            members.await_level()
        check_everything(members, load)


def test_one_of_three_commits_nothing_and_the_first_that_returns_brings_the_majority_back(members_of):
    members = members_of()
    members.start()
    with Load(members.tcp, messages_per_s=1_000) as load:
        load.await_progress(members.tell)
        leader = members.await_leader()
        back = (leader + 1) % 3
        members.kill(leader, back)
        until = time.monotonic() + 2
        while time.monotonic() < until:
            assert members.leader() is None, f"one of three leads\n{members.tell()}"
        members.start(back)
        load.await_progress(members.tell)
        members.start(leader)
        members.await_level()
        check_everything(members, load)


def test_a_member_that_is_killed_while_it_catches_up_catches_up_the_next_time(members_of):
    members = members_of()
    members.start()
    with Load(members.tcp, messages_per_s=20_000, payload_bytes=1_000) as load:
        load.await_progress(members.tell)
        follower = (members.await_leader() + 1) % 3
        members.kill(follower)
        behind = members.standing(follower)
        assert behind is not None
        for _ in range(3):
            load.await_progress(members.tell)
            members.spawn(follower)
            await_that(
                lambda: is_catching_up(members, follower), "the member takes the log up", tell=members.tell
            )
            members.kill(follower)
        members.start(follower)
        members.await_level()
        check_everything(members, load)


def is_catching_up(members, member_id: int) -> bool:
    """Whether the member listens and is in an election or level already: there is no time to miss it."""
    standing = members.standing(member_id)
    return standing is not None and standing.is_live and standing.election_state != ElectionState.INIT
