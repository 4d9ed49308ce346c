"""A host is replaced by the steps of docs/operations.md, with real processes and under load."""

from __future__ import annotations

import pytest

from benchmarks.load import Load
from benchmarks.real_members import free_base_port
from cluster import ClusterClient
from tests.faults.conftest import check_everything

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("has_old_disk", [False, True], ids=["empty disk", "old disk"])
def test_a_host_is_replaced_under_load_and_clients_follow(members_of, has_old_disk):
    """Clients that know only the old endpoints find whoever leads by what the others tell them."""
    members = members_of()
    members.start()
    old_endpoints = members.endpoints
    with Load(old_endpoints, messages_per_s=1_000) as load:
        load.await_progress(members.tell)
        leader = members.await_leader()
        replaced, other = (leader + 1) % 3, (leader + 2) % 3
        old_port = members.ports[replaced]

        # 1. The new address goes into the configuration of every member; the old host is stopped.
        members.stop(replaced)
        members.ports[replaced] = free_base_port(1)
        if not has_old_disk:
            members.directory.joinpath(f"member-{replaced}").rename(members.directory / "old-disk")
        # 2. The new host starts; it can be reached by nobody who has the old configuration.
        members.start(replaced)
        # 3. The members that stay are started again one by one, the leader last.
        for member_id in (other, leader):
            members.stop(member_id)
            members.start(member_id)
            elected = members.await_leader()
            load.await_progress(members.tell)
        closes_sessions = elected == leader  # who leads from its start on (C-231)
        members.await_level()

        # Whoever leads, clients are told where; the new host may win any of these elections.
        for _ in range(3):
            now = members.await_leader()
            if now == replaced:
                break
            members.stop(now)
            members.await_leader(other_than=now)
            load.await_progress(members.tell)
            members.start(now)
            members.await_level()
        load.await_progress(members.tell)
        assert members.ports[replaced] != old_port
        with ClusterClient.connect(old_endpoints) as client:
            assert client.leader_member_id == members.await_leader()
        check_everything(members, load)
        assert len(load.sessions) == 1 + closes_sessions, f"the session outlives it: {load.sessions}"
