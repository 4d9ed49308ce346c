"""Links that are slow, silent, cut, halved and garbled: a proxy stands on every way between two members."""

from __future__ import annotations

import time

import pytest

from benchmarks.load import Load
from benchmarks.real_members import await_that
from tests.faults.conftest import (
    BEYOND_STEADY_S,
    SHORT_TIMEOUTS,
    STEADY_TIMEOUTS,
    check_everything,
    leadership_terms,
)
from tests.faults.proxy import Network

pytestmark = pytest.mark.faults


def test_links_that_take_their_time_cost_no_election(members_of):
    members = members_of()
    with Network(members) as network:
        members.start()
        with Load(members.tcp) as load:
            load.await_progress(members.tell)
            term = leadership_terms(members)
            network.set(delay_s=0.05)
            until = time.monotonic() + 3
            while time.monotonic() < until:
                load.await_progress(members.tell)
            assert leadership_terms(members) == term, members.tell()
            network.heal()
            check_everything(members, load)


@pytest.mark.parametrize("fault", ["cut", "halved", "garbled"])
def test_links_that_break_all_the_time_lose_and_change_nothing(members_of, fault):
    members = members_of()
    with Network(members) as network:
        members.start()
        with Load(members.tcp, messages_per_s=2_000) as load:
            load.await_progress(members.tell)
            if fault == "halved":
                network.set(cut_in=40)
            elif fault == "garbled":
                network.set(garble_each=40)
            until = time.monotonic() + 5
            while time.monotonic() < until:
                if fault == "cut":
                    network.cut()
                time.sleep(0.2)
            network.heal()
            load.await_progress(members.tell)
            ways = network.ways.values()
            assert sum(way.garbled if fault == "garbled" else way.cuts for way in ways) >= 10
            check_everything(members, load)


def test_a_leader_that_the_network_has_lost_is_replaced_and_follows_when_it_is_back(members_of):
    members = members_of(keys=SHORT_TIMEOUTS)
    with Network(members) as network:
        members.start()
        with Load(members.tcp) as load:
            load.await_progress(members.tell)
            lost = members.await_leader()
            network.set(network.of(lost), is_silent=True)
            others = [i for i in members.ids if i != lost]
            await_that(
                lambda: any(s.role.name == "LEADER" for s in members.established(others).values()),
                "the others elect a leader",
                tell=members.tell,
            )
            load.await_progress(members.tell)
            network.heal()
            await_that(
                lambda: members.leader() != lost and lost in members.established(),
                "the one that was lost follows",
                tell=members.tell,
            )
            load.await_progress(members.tell)
            check_everything(members, load)


def test_a_leader_that_hears_nobody_any_more_makes_room_although_everybody_hears_it(members_of):
    members = members_of(keys=SHORT_TIMEOUTS)
    with Network(members) as network:
        members.start()
        with Load(members.tcp) as load:
            load.await_progress(members.tell)
            deaf = members.await_leader()
            network.set([way for (_, b), way in network.ways.items() if b == deaf], is_silent=True)
            members.await_leader(other_than=deaf)
            load.await_progress(members.tell)
            network.heal()
            load.await_progress(members.tell)
            check_everything(members, load)


@pytest.mark.parametrize("is_deaf", [True, False], ids=["deaf", "mute"])
def test_a_follower_of_which_one_way_is_lost_for_long_does_not_disturb_the_others(members_of, is_deaf):
    members = members_of(keys=STEADY_TIMEOUTS)
    with Network(members) as network:
        members.start()
        with Load(members.tcp) as load:
            load.await_progress(members.tell)
            leader = members.await_leader()
            follower = (leader + 1) % 3
            lost = [way for pair, way in network.ways.items() if pair[1 if is_deaf else 0] == follower]
            network.set(lost, is_silent=True)
            until = time.monotonic() + BEYOND_STEADY_S
            while time.monotonic() < until:
                load.await_progress(members.tell)
                standing = members.standing(leader)
                assert standing is not None and standing.is_established, members.tell()
                assert members.leader() == leader, members.tell()
            network.heal()
            members.await_leader()
            check_everything(members, load)
