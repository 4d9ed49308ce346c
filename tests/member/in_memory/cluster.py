"""``SimulatedCluster``: members and clients in one world, faults on demand, and what must always hold.

Checked after every turn of a member: one leader a term, services that apply the same at the same position.
Checked by ``check``: committed bytes equal on all members. Checked by ``check_promises``: everything that was
acknowledged is in every log, once and in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cluster.consensus.context import ConsensusModuleContext
from cluster.testing.world import MS, SECOND
from tests.member.in_memory.client import SimulatedClient
from tests.member.in_memory.member import SimulatedMember, log_bytes
from tests.member.in_memory.network import Links, a_network_without_faults
from tests.simulation.member import Settings
from tests.simulation.world import World

US = 1_000
# Where nothing but the passing of time-outs is awaited: the same in their order, a fifth and a tenth as long.
QUICK = {"leader_heartbeat_timeout_ns": 2 * SECOND, "startup_canvass_timeout_ns": 6 * SECOND}
LONG_NS = 12 * SECOND  # twice the longest of them


class SparingContext(ConsensusModuleContext):
    """Slow ticks at half of Aeron's rate: a test that awaits time-outs spends most of its time in them."""

    slow_tick_interval_ns = 20 * MS


class InvariantBroken(AssertionError):
    """The history shows what must never happen."""


class SimulatedCluster:
    """Members 0 to ``member_count`` - 1, started at once unless told otherwise."""

    def __init__(
        self,
        member_count: int = 3,
        seed: int = 1,
        *,
        delay_ns: tuple[int, int] = (20 * US, 200 * US),
        term_length: int = 64 * 1024,
        file_sync_level: int = 1,
        is_started: bool = True,
        **settings: Any,
    ) -> None:
        self.world = World(seed)
        self.network = a_network_without_faults(self, delay_ns)
        self.links = Links(self)
        self.incarnation = 0
        self.member_count = member_count
        self.term_length = term_length
        self.file_sync_level = file_sync_level
        self._settings = settings
        self.members = [SimulatedMember(self, member_id) for member_id in range(member_count)]
        self.lists: dict[int, tuple[int, ...]] = {}  # of members that are configured as no other is
        self.clients: list[SimulatedClient] = []
        self.leader_of_term: dict[int, int] = {}
        self._commit_positions = [0] * member_count
        self._chain_at: dict[int, tuple[bytes, int]] = {}
        if is_started:
            for member in self.members:
                member.start()

    def context_of(self, member_id: int) -> ConsensusModuleContext:
        return SparingContext(
            member_id=member_id,
            member_ids=self.lists.get(member_id, tuple(range(self.member_count))),
            ingress_endpoints=",".join(f"{i}=simulated:{i}" for i in range(self.member_count)),
            max_sessions=64,
            log_term_length=self.term_length,
            **self._settings,
        )

    def settings_of(self, context: ConsensusModuleContext) -> Settings:
        return Settings(
            context,
            file_sync_level=self.file_sync_level,
            segment_length=self.term_length,
            checksums=(None,) * self.member_count,
        )

    def next_incarnation(self) -> int:
        self.incarnation += 1
        return self.incarnation

    # ---- time

    @property
    def events(self) -> list[str]:
        """The last things that members told of themselves, as "who: what"."""
        return [f"{who}: {what}" for _, who, what in self.world.trace.events]

    def after(self, delay_ns: int, action: Callable[..., object], *arguments: object) -> None:
        """Have ``action`` happen so much later."""
        self.world.at(self.world.now_ns + delay_ns, action, *arguments)

    def step(self) -> None:
        """Let the next thing happen."""
        self.world.step()

    def run(self, duration_ns: int) -> None:
        """Let so much time pass."""
        self.world.run_until(self.world.now_ns + duration_ns)

    def run_until(self, condition, timeout_ns: int = 30 * SECOND) -> None:  # type: ignore[no-untyped-def]
        """Let time pass until the condition holds; it has to within ``timeout_ns``."""
        end_ns = self.world.now_ns + timeout_ns
        while not condition():
            if self.world.now_ns > end_ns or not self.world.step():
                raise InvariantBroken(f"not within {timeout_ns / SECOND} s: {condition.__doc__ or condition}")

    # ---- who is who

    def leaders(self) -> list[tuple[int, int]]:
        """(term, member) of everyone who leads an established term."""
        return [(member.leadership_term_id, member.member_id) for member in self.members if member.is_leading]

    @property
    def leader(self) -> SimulatedMember | None:
        """The leader of the highest term, None while there is none."""
        leaders = self.leaders()
        return self.members[max(leaders)[1]] if leaders else None

    def await_leader(self, timeout_ns: int = 30 * SECOND) -> SimulatedMember:
        """Run until someone leads and a majority follows."""

        def there_is_a_leader_and_a_majority_follows() -> bool:
            leader = self.leader
            if leader is None:
                return False
            following = sum(
                member.is_following and member.leadership_term_id == leader.leadership_term_id
                for member in self.members
            )
            return following + 1 >= self.member_count // 2 + 1

        self.run_until(there_is_a_leader_and_a_majority_follows, timeout_ns)
        leader = self.leader
        assert leader is not None
        return leader

    @property
    def followers(self) -> list[SimulatedMember]:
        return [member for member in self.members if member.is_following]

    def add_client(self) -> SimulatedClient:
        client = SimulatedClient(self, len(self.clients))
        self.clients.append(client)
        client.start()
        return client

    def await_settled(self, timeout_ns: int = 60 * SECOND) -> None:
        """Run until every client knows everything that it sent to be committed."""

        def all_clients_are_settled() -> bool:
            return all(client.is_settled for client in self.clients)

        self.run_until(all_clients_are_settled, timeout_ns)

    def await_level(self, timeout_ns: int = 30 * SECOND) -> None:
        """Run until all running members have processed the same log, services included."""

        def all_members_are_level() -> bool:
            leader = self.leader
            if leader is None or not leader.is_publishing:
                return False
            end = leader.published_position
            return all(
                not member.is_running
                or (
                    (member.is_leading or member.is_following)
                    and member.commit_position == end
                    and member.service_agent is not None
                    and member.service_agent.state.log_position >= 0
                    and member.service_agent.joined_position == end
                )
                for member in self.members
            )

        self.run_until(all_members_are_level, timeout_ns)

    # ---- what must always hold

    def after_turn(self, member: SimulatedMember) -> None:
        if member.is_leading:
            known = self.leader_of_term.setdefault(member.leadership_term_id, member.member_id)
            if known != member.member_id:
                self._broken(f"members {known} and {member.member_id} lead term {member.leadership_term_id}")
        before = self._commit_positions[member.member_id]
        if member.commit_position > before:
            self._commit_positions[member.member_id] = member.commit_position

    def on_applied(self, member_id: int, position: int, chain: bytes) -> None:
        """Services of all members, and of all their lives, are told the same up to the same position."""
        known = self._chain_at.setdefault(position, (chain, member_id))
        if known[0] != chain:
            self._broken(
                f"the service of member {member_id} was told something else up to {position} "
                f"than that of member {known[1]}"
            )

    def check(self) -> None:
        """Compare what the running members have committed, byte by byte."""
        running = [member for member in self.members if member.recording is not None]
        if not running:
            return
        common = min(member.commit_position for member in running)
        contents = {member.member_id: log_bytes(member, 0, common) for member in running}
        first = contents[running[0].member_id]
        for member_id, content in contents.items():
            if content != first:
                at = next(i for i in range(len(first)) if content[i : i + 1] != first[i : i + 1])
                self._broken(
                    f"committed bytes of members {running[0].member_id} and {member_id} differ at {at}"
                )

    def check_promises(self) -> None:
        """Hold the services of level members to what clients were promised: all of it, once, in order."""
        for member in self.members:
            if member.service is None or not member.is_running:
                continue
            for client in self.clients:
                prefix = f"{client.client_id}:".encode()
                seen = [payload for payload in member.service.applied if payload.startswith(prefix)]
                promised = client.sent[: client.acknowledged]
                if seen[: len(promised)] != promised:
                    self._broken(f"{client.name} was promised {len(promised)} messages, not so in the log")
                if seen != client.sent[: len(seen)]:
                    self._broken(f"messages of {client.name} are in the log twice, or out of order")

    def _broken(self, what: str) -> None:
        self.world.say("invariant", what)
        raise InvariantBroken(what)


__all__ = ["LONG_NS", "MS", "QUICK", "SECOND", "US", "InvariantBroken", "SimulatedCluster"]
