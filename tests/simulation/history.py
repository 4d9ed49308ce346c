"""One seed, one history: a cluster under load while its members, links and power fail, and then heal.

Faults are chosen by the seed and leave a majority standing most of the time, not always: what a minority or
nobody can do must be right as well. After the last fault everything comes back, and the cluster has to do so
too: everything sent is committed, all logs and services are level, within a bounded time.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from cluster.protocol.enums import ElectionState
from tests.simulation.cluster import MS, SECOND, SimulatedCluster

MEMBER_COUNTS = (3, 3, 3, 5)
STATES = tuple(ElectionState)[2:17]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What can be told of a history that went well."""

    seed: int
    trace_hash: int
    terms: int
    acknowledged: int
    faults: int
    virtual_s: float


class History:
    """``run`` raises InvariantBroken (or whatever broke) with ``cluster.world.events`` telling how."""

    def __init__(self, seed: int, fault_count: int = 12) -> None:
        self.seed = seed
        self.random = Random(seed * 7919 + 17)
        self.fault_count = fault_count
        self.cluster = SimulatedCluster(
            self.random.choice(MEMBER_COUNTS),
            seed,
            delay_ns=self.random.choice([(20_000, 200_000), (50_000, 2 * MS), (1 * MS, 40 * MS)]),
        )
        self._faults = [
            (self._kill, 4),
            (self._kill_leader, 4),
            (self._power_cut, 2),
            (self._power_cut_of_all, 1),
            (self._reset_links, 3),
            (self._partition, 3),
            (self._one_way, 2),
            (self._pause, 2),
            (self._stop_in_order, 1),
            (self._strike_in_state, 6),
        ]

    def run(self) -> Outcome:
        cluster, random = self.cluster, self.random
        cluster.await_leader(timeout_ns=90 * SECOND)
        for _ in range(random.randint(1, 3)):
            cluster.add_client()
        self._send_for(random.randint(20, 200) * MS)
        for _ in range(self.fault_count):
            fault = random.choices([f for f, _ in self._faults], [w for _, w in self._faults])[0]
            fault()
            self._send_for(random.choice([1, 5, 30, 300, 1500, 6000]) * MS)
            if random.random() < 0.5:
                self._repair()
                self._send_for(random.choice([1, 100, 2000]) * MS)
            cluster.check()
        self._repair()
        cluster.await_leader(timeout_ns=150 * SECOND)
        self._send_for(50 * MS)
        cluster.await_settled(timeout_ns=90 * SECOND)
        cluster.await_level(timeout_ns=60 * SECOND)
        cluster.check()
        cluster.check_promises()
        return Outcome(
            seed=self.seed,
            trace_hash=cluster.world.trace_hash,
            terms=len(cluster.leader_of_term),
            acknowledged=sum(client.acknowledged for client in cluster.clients),
            faults=self.fault_count,
            virtual_s=cluster.world.now_ns / SECOND,
        )

    # ---- load

    def _send_for(self, duration_ns: int) -> None:
        cluster, random = self.cluster, self.random
        pieces = random.randint(1, 6)
        for _ in range(pieces):
            for client in cluster.clients:
                if client.is_lost:
                    continue
                for _ in range(random.choice([0, 1, 3, 20])):
                    payload = b"%d:%d:" % (client.client_id, len(client.sent))
                    client.send(payload + bytes(random.choice([0, 5, 100, 1400, 3000])))
            cluster.run(duration_ns // pieces)
        if all(client.is_lost for client in cluster.clients):
            cluster.add_client()

    # ---- faults

    def _pick(self, running: bool = True):  # type: ignore[no-untyped-def]
        members = [member for member in self.cluster.members if member.is_running == running]
        return self.random.choice(members) if members else None

    def _kill(self) -> None:
        member = self._pick()
        if member is not None:
            member.kill()

    def _kill_leader(self) -> None:
        if self.cluster.leader is not None:
            self.cluster.leader.kill()

    def _power_cut(self) -> None:
        member = self._pick()
        if member is not None:
            member.power_cut()

    def _power_cut_of_all(self) -> None:
        for member in self.cluster.members:
            member.power_cut()

    def _stop_in_order(self) -> None:
        member = self._pick()
        if member is not None:
            member.stop()

    def _reset_links(self) -> None:
        count = self.cluster.member_count
        for _ in range(self.random.randint(1, 3)):
            one = self.random.randrange(count)
            self.cluster.network.reset(one, (one + 1 + self.random.randrange(count - 1)) % count)

    def _partition(self) -> None:
        ids = list(range(self.cluster.member_count))
        self.random.shuffle(ids)
        cut = self.random.randint(1, len(ids) - 1)
        self.cluster.world.tell("network", f"partition {sorted(ids[:cut])} | {sorted(ids[cut:])}")
        for one in ids[:cut]:
            for two in ids[cut:]:
                self.cluster.network.block(one, two)
                self.cluster.network.block(two, one)

    def _one_way(self) -> None:
        count = self.cluster.member_count
        one = self.random.randrange(count)
        two = (one + 1 + self.random.randrange(count - 1)) % count
        self.cluster.world.tell("network", f"nothing comes from {one} to {two}")
        self.cluster.network.block(one, two)

    def _pause(self) -> None:
        member = self._pick()
        if member is not None:
            self.cluster.world.tell(member.name, "is paused")
            member.pause()

    def _strike_in_state(self) -> None:
        """Disturb the cluster, wait for a member to be in some state of an election, and strike there."""
        cluster, random = self.cluster, self.random
        self._repair()
        leader = cluster.leader
        if leader is not None:
            random.choice([leader.kill, leader.pause, leader.power_cut])()
        wanted = random.choice(STATES)
        end_ns = cluster.world.now_ns + 12 * SECOND
        while cluster.world.now_ns < end_ns:
            for member in cluster.members:
                election = None if member.agent is None else member.agent.election
                if election is not None and election.state is wanted:
                    cluster.world.tell(member.name, f"is struck in {wanted.name}")
                    others = [other for other in cluster.members if other is not member]
                    random.choice([member.kill, member.power_cut, member.pause, others[0].kill])()
                    return
            cluster.step()

    def _repair(self) -> None:
        """Everything that failed comes back."""
        self.cluster.world.tell("repair", "all come back")
        self.cluster.network.heal()
        for member in self.cluster.members:
            if member.is_running and member.is_paused:
                member.resume()
            elif not member.is_running:
                member.start()
