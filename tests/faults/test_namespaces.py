"""Hosts that lose each other on a real network: no reset tells anybody, only silence does."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from benchmarks.load import Load
from benchmarks.real_members import RealMembers, await_that
from cluster.cli.status_document import status_document
from cluster.transport.tls import TLS_VARIABLES
from tests.faults.conftest import (
    BEYOND_STEADY_S,
    SHORT_TIMEOUTS,
    STEADY_TIMEOUTS,
    check_everything,
)
from tests.faults.network import Hosts
from tests.transport.authorities import Certificates

pytestmark = pytest.mark.faults


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    with Hosts() as made:
        yield made


@pytest.fixture
def members_on(hosts, members_of):
    """Makes three members, each on its host."""

    def make(keys) -> RealMembers:
        members = members_of(hosts=hosts.addresses, keys=keys)
        members.prefix_of = {i: hosts.prefix(i) for i in members.ids}
        return members

    return make


def finish(hosts: Hosts, members: RealMembers, load: Load) -> None:
    """The whole check; what members serve is asked for from where clients are."""
    load.finish()
    hosts.in_hub(lambda: check_everything(members, load, over_tcp=True))


def test_a_leader_whose_host_is_unplugged_is_replaced_and_follows_when_it_is_back(hosts, members_on):
    members = members_on(SHORT_TIMEOUTS)
    members.start()
    with Load(members.tcp, within=hosts.enter_hub) as load:
        load.await_progress(members.tell)
        lost = members.await_leader()
        hosts.unplug(lost)
        others = [i for i in members.ids if i != lost]
        await_that(
            lambda: any(s.role.name == "LEADER" for s in members.established(others).values()),
            "the others elect a leader",
            tell=members.tell,
        )
        load.await_progress(members.tell)
        hosts.plug(lost)
        await_that(
            lambda: members.leader() not in (None, lost) and lost in members.established(),
            "the one that was lost follows",
            tell=members.tell,
        )
        load.await_progress(members.tell)
        finish(hosts, members, load)


def test_a_leader_that_is_no_longer_heard_is_replaced(hosts, members_on):
    members = members_on(SHORT_TIMEOUTS)
    members.start()
    with Load(members.tcp, within=hosts.enter_hub) as load:
        load.await_progress(members.tell)
        mute = members.await_leader()
        others = [i for i in members.ids if i != mute]
        for other in others:
            hosts.lose(mute, other)
        await_that(
            lambda: any(s.role.name == "LEADER" for s in members.established(others).values()),
            "the others elect a leader",
            tell=members.tell,
        )
        for other in others:
            hosts.find(mute, other)
        load.await_progress(members.tell)
        finish(hosts, members, load)


def test_a_follower_that_hears_and_is_not_heard_disturbs_nobody(hosts, members_on):
    members = members_on(STEADY_TIMEOUTS)
    members.start()
    with Load(members.tcp, within=hosts.enter_hub) as load:
        load.await_progress(members.tell)
        leader = members.await_leader()
        mute = (leader + 1) % 3
        others = [i for i in members.ids if i != mute]
        for other in others:
            hosts.lose(mute, other)
        until = time.monotonic() + BEYOND_STEADY_S
        while time.monotonic() < until:
            load.await_progress(members.tell)
            assert members.leader() == leader, members.tell()
        for other in others:
            hosts.find(mute, other)
        finish(hosts, members, load)


def test_two_followers_that_have_lost_each_other_both_follow(hosts, members_on):
    members = members_on(STEADY_TIMEOUTS)
    members.start()
    with Load(members.tcp, within=hosts.enter_hub) as load:
        load.await_progress(members.tell)
        leader = members.await_leader()
        a, b = ((leader + 1) % 3, (leader + 2) % 3)
        hosts.lose(a, b)
        hosts.lose(b, a)
        until = time.monotonic() + BEYOND_STEADY_S
        while time.monotonic() < until:
            load.await_progress(members.tell)
            assert members.leader() == leader, members.tell()
        status = status_document(members.directory)
        low, high = sorted((a, b))
        cut = [each["text"] for each in status["messages"] if each["name"] == "link-down"]
        assert cut == [f"members {low} and {high} cannot reach each other"]
        assert (status["verdict"], status["mayFail"]["withoutStopping"]) == ("at-risk", 0)
        hosts.find(a, b)
        hosts.find(b, a)
        finish(hosts, members, load)


@pytest.mark.parametrize("cut_s", [30, 60])
@pytest.mark.parametrize("is_one_way", [False, True], ids=["both ways", "one way"])
def test_a_host_that_was_cut_off_for_long_follows_soon_after(hosts, members_on, cut_s, is_one_way):
    members = members_on(SHORT_TIMEOUTS)
    members.start()
    with Load(members.tcp, within=hosts.enter_hub) as load:
        load.await_progress(members.tell)
        lost = members.await_leader()
        others = [i for i in members.ids if i != lost]
        if is_one_way:
            for other in others:
                hosts.lose(lost, other)
        else:
            hosts.unplug(lost)
        until = time.monotonic() + cut_s
        while time.monotonic() < until:
            load.await_progress(members.tell)
        if is_one_way:
            for other in others:
                hosts.find(lost, other)
        else:
            hosts.plug(lost)
        healed = time.monotonic()
        await_that(
            lambda: members.leader() not in (None, lost) and lost in members.established(),
            "the one that was cut off follows",
            tell=members.tell,
        )
        took_s = time.monotonic() - healed
        assert took_s < 6, f"{took_s:.1f} s after a cut of {cut_s} s"  # TCP alone: as long as the cut again
        finish(hosts, members, load)


def test_hosts_that_speak_tls_go_on_without_the_leader_and_follow_when_it_is_back(
    hosts, members_on, tmp_path, monkeypatch
):
    """Links go over TCP between hosts alone: on one host they are Unix sockets, without TLS."""
    certificates = Certificates(tmp_path / "certs")
    members = members_on(SHORT_TIMEOUTS)
    for i, address in enumerate(hosts.addresses):
        files = certificates.member(i, address)
        members.keys_of[i] = {f"tls_{name}": getattr(files, name) for name in ("ca", "certificate", "key")}
    monkeypatch.setenv(TLS_VARIABLES["ca"], certificates.trust.ca)
    members.start()
    with Load(members.tcp, within=hosts.enter_hub) as load:
        load.await_progress(members.tell)
        killed = members.await_leader()
        members.kill(killed)
        load.await_progress(members.tell)
        members.start(killed)
        load.await_progress(members.tell)
        load.await_seconds(BEYOND_STEADY_S)
        finish(hosts, members, load)
