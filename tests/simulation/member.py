"""A member's process under the nemesis: one can look into it, and its services chain all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any
from zlib import crc32

from cluster.archive.files import Buffer
from cluster.consensus.context import ConsensusModuleContext
from cluster.errors import ClusterError, MembersApart, ServiceError
from cluster.member.ports import FetchedRecordings
from cluster.node.ports import LifeSettings
from cluster.testing import member
from tests.simulation.compiled_service import CompiledChainService
from tests.simulation.links import ObservedCalls, ObservedLinks
from tests.simulation.member_state import MemberState
from tests.simulation.service import ChainService, VectorisedChainService
from tests.simulation.service_process import PortsApart, ServiceParent
from tests.simulation.violation import require
from tests.simulation.world import Effect, Mortal, World


@dataclass(frozen=True, slots=True)
class Settings(member.Settings):
    """What all members of a run share."""

    is_mended: bool = True  # damaged logs are; else they are cut, as if nobody gave what is missing
    services_apart: bool = False  # each in a process of its own
    is_first_inline: bool = False  # service 0 is in line nevertheless

    @property
    def service_modes(self) -> Iterator[str]:
        for service_id in range(self.context.service_count):
            is_apart = self.services_apart and not (service_id == 0 and self.is_first_inline)
            yield "process" if is_apart else "inline"


class Observer:
    """What the run wants to hear of its members; the invariants are one."""

    def on_started(self, member: Member) -> None: ...

    def on_turn(self, member: Member) -> None: ...

    def on_killed(self, member: Member) -> None: ...

    def on_sent(self, member: Member, to_member_id: int, buffers: tuple[Buffer, ...]) -> None: ...

    def on_applied(self, member: Member, service_id: int, position: int, chain: int) -> None: ...

    def on_event(self, member: Member, text: str) -> None: ...

    def on_life_ended(self, member: Member, error: BaseException) -> None: ...

    def on_ended(self, member: Member, error: BaseException | None) -> None: ...


class ObservedPorts(PortsApart):
    """What goes out is told to the member."""

    calls_type = ObservedCalls

    def __init__(self, member: Member, *arguments: Any) -> None:
        super().__init__(member, *arguments)
        self.links_type = partial(ObservedLinks, member)


Archives = Callable[["Member", str, Sequence[int]], FetchedRecordings]


def _nobody(member: Member, endpoint: str, recording_ids: Sequence[int]) -> FetchedRecordings:
    raise ClusterError(f"{endpoint}: nobody is there")


class Member(MemberState, Mortal, ServiceParent):
    """What its run wants to hear goes to ``observer``."""

    service_name = "ChainService"
    world: World
    settings: Settings
    hears_by_sockets_alone = True  # else what a test hands it is no event
    dies_by_power = False  # when it is killed

    def __init__(
        self, *arguments: Any, observer: Observer, archives: Archives = _nobody, **named: Any
    ) -> None:
        """``archives``: what answers at the endpoints that standbys have announced."""
        super().__init__(*arguments, **named)
        self.observer = observer
        self.archives = archives
        self.services: list[ChainService] = []  # of this life, by their ids
        self._state: tuple[int, ...] = ()

    def turn(self) -> int | None:
        """Who says that only events bring more to do finds nothing in a turn without one."""
        life = self.life if self.is_up else None
        if life is None or not self.hears_by_sockets_alone or not life.awaits_events:
            return super().turn()
        module = life.consensus_module
        slow_tick_ns, deadline = module.turn.slow_tick_ns, module.replica.timers.next_deadline
        self.poller.marked_count = 0
        again_ns = super().turn()
        others = [member_id for member_id in self.settings.context.member_ids if member_id != self.member_id]
        is_time = (
            module.turn.now_ns >= slow_tick_ns
            or (deadline is not None and module.replica.cluster_time >= deadline)
            or not all(map(life.links.is_up, others))  # who is down is dialled from time to time
        )
        require(
            again_ns != 0 or is_time or self.poller.marked_count > 0 or self.life is not life,
            "I-24",
            f"{self.name} found something to do in a turn without events",
        )
        return again_ns

    # -- told --

    def load_service(self, service_id: int, random: Random) -> ChainService:
        if service_id == 0 and not self.settings.services_apart:
            self.services = []
        kinds = ChainService, CompiledChainService, VectorisedChainService
        kind = kinds[int(len(kinds) * random.random())]
        service = kind(service_id, self.on_applied)
        if self.settings.services_apart:  # its member may take turns between two requests of a callback
            service.first_delay_ms = 60_000
        self.services[service_id : service_id + 1] = [service]
        return service

    def _turn_service(self, service_id: int, *arguments: Any) -> int:
        try:
            return super()._turn_service(service_id, *arguments)
        finally:
            for service in self.services[service_id : service_id + 1]:  # none where another loads them
                service.tell_applied()

    def open_ports(self, context: ConsensusModuleContext) -> ObservedPorts:
        return ObservedPorts(self, context, self._random)

    def _life_settings(self, context: ConsensusModuleContext) -> LifeSettings:
        return replace(super()._life_settings(context), service_modes=[*self.settings.service_modes])

    def fetch_recordings(self, endpoint: str, recording_ids: Sequence[int]) -> FetchedRecordings:
        return self.archives(self, endpoint, recording_ids)

    def on_opened(self) -> None:
        for service_id, mode in enumerate(self.settings.service_modes):
            if mode == "process":  # it is another one once its process is there
                self.services[service_id : service_id + 1] = [ChainService(service_id, self.on_applied)]
        if not self.settings.is_mended:
            assert self.life is not None
            self.life.files.archive.open_repair = lambda damage: None  # type: ignore[method-assign]

    def _start(self) -> None:
        super()._start()
        self.world.effects.add(Effect.BEGAN, self.member_id)
        self.observer.on_started(self)

    def on_service_turned(self, service_id: int) -> None:
        for service in self.services[service_id : service_id + 1]:
            service.tell_applied()

    def on_turned(self) -> None:
        self._show_state()
        for service in self.services:
            service.tell_applied()
        self.observer.on_turn(self)

    def _show_state(self) -> None:
        """To the hash of effects, when it has changed."""
        assert self.life is not None
        counters = self.life.counters
        state = (
            counters.leadership_term_id.get(),
            counters.election_state.get(),
            counters.node_role.get(),
            counters.module_state.get(),
            counters.commit_position.get(),
        )
        if state != self._state:
            self._state = state
            self.world.effects.add(Effect.STATE, self.member_id, *state)

    def on_killed(self) -> None:
        self.observer.on_killed(self)
        if self.dies_by_power:
            self.lose_power()
        else:
            super().on_killed()

    def _end_life(self, error: ClusterError) -> int:
        self.services = []
        self.observer.on_life_ended(self, error)
        return super()._end_life(error)

    def _close_life(self) -> None:
        super()._close_life()
        self.world.effects.add(Effect.ENDED, self.member_id, True)

    def _exit(self, error: BaseException | None) -> None:
        super()._exit(error)
        self.world.effects.add(Effect.ENDED, self.member_id, error is not None)
        self.observer.on_ended(self, error)

    def on_sent(self, to_member_id: int, buffers: tuple[Buffer, ...]) -> None:
        data = b"".join(buffers)
        self.world.effects.add(Effect.SENT, self.member_id, to_member_id, len(data), crc32(data))
        self.observer.on_sent(self, to_member_id, buffers)

    def on_error(self, error: Exception) -> None:
        super().on_error(error)
        require(not isinstance(error, MembersApart), "I-6", str(error))

    def on_recorded_error(self, where: str, error: BaseException) -> None:
        """No service of the simulation raises, and what no error is for is a bug."""
        if isinstance(error, ServiceError) or not isinstance(error, ClusterError):
            raise error
        self.on_error(error)

    def say(self, text: str) -> None:
        super().say(text)
        self.observer.on_event(self, text)

    def on_applied(self, service_id: int, position: int, chain: int) -> None:
        self.world.effects.add(Effect.APPLIED, self.member_id, service_id, position, chain)
        self.observer.on_applied(self, service_id, position, chain)

    # -- asked by the run --

    @property
    def links(self) -> ObservedLinks:
        assert self.life is not None, f"{self.name} has no life"
        return self.life.links  # type: ignore[return-value]

    @property
    def is_leading(self) -> bool:
        return self.is_alive and super().is_leading

    @property
    def is_following(self) -> bool:
        return self.is_alive and super().is_following
