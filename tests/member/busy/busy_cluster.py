"""Three members in memory, turned by Python alone or in compiled code where that can.

python -m tests.member.busy.busy_cluster        prints the trace hashes of two runs, compiled where JIT is on
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from cluster.consensus.context import ConsensusModuleContext
from cluster.node.ports import LifeSettings
from cluster.service.clustered_service import ClusteredService
from cluster.service.echo import EchoService
from cluster.testing import SimulatedCluster
from cluster.testing import cluster as simulated
from cluster.testing.member import MemberProcess, Settings
from tests.service.compiled_services import Counter
from tests.simulation.network import FaultyNetwork
from tests.simulation.service_process import ServiceParent


class _Member(ServiceParent, simulated._Member):
    """Of a SimulatedCluster, with services in processes of their own."""


def run(
    messages: list[list[bytes]],
    *,
    is_compiled: bool,
    members: int = 3,
    seed: int = 1,
    service: type[ClusteredService] = EchoService,
    beside: Sequence[tuple[type[ClusteredService], str]] = (),
    mode: str = "inline",
    supervised: bool = False,
    **settings: Any,
) -> SimulatedCluster:
    """A client for each list; all are answered when it returns. Services ``beside`` have a mode each."""
    modes = [mode, *(mode for _, mode in beside)]
    life_settings: Callable[..., LifeSettings] = MemberProcess._life_settings

    def made(context: ConsensusModuleContext, **given: Any) -> Settings:
        return Settings(context, **given | settings)

    def in_modes(member: MemberProcess, context: ConsensusModuleContext) -> LifeSettings:
        return replace(life_settings(member, context), service_modes=modes)

    with (
        patch.object(simulated, "Settings", made),
        patch.object(simulated, "_Member", _Member),
        patch.object(simulated, "Network", FaultyNetwork),
        patch.object(MemberProcess, "_life_settings", in_modes),
    ):
        services = [service, *(other for other, _ in beside)]
        cluster = SimulatedCluster(*services, members=members, seed=seed, compiled_turns=is_compiled)
        clients = [
            cluster.connect(f"client {number}", supervised=supervised) for number in range(len(messages))
        ]
        for row in range(max(map(len, messages))):
            for client, payloads in zip(clients, messages):
                if row < len(payloads):
                    client.offer(payloads[row])
            if row % 3 == 0:
                cluster.run(0.005)
        cluster.settle()
    return cluster


def processes(cluster: SimulatedCluster) -> list[MemberProcess]:
    return [cluster._members[member_id] for member_id in cluster.running]


def compiled_turns(member: MemberProcess) -> int:
    """How many turns with work its compiled turn has taken; 0 where Python takes all."""
    assert member.life is not None
    return 0 if member.life.busy is None else member.life.busy.work_turns


def log_of(member: MemberProcess) -> bytes:
    """The recorded log, as it is on the disk."""
    assert member.life is not None
    recording = member.life.consensus_module.log.recording
    assert recording is not None
    return bytes(
        recording.read(recording.start_position, recording.append_position - recording.start_position)
    )


PAYLOADS = [[b"%d %d" % (client, row) + b"." * (row * 37 % 900) for row in range(40)] for client in range(2)]

# What Counter has in compiled code, and now and then what it leaves to Python or raises for.
COUNTED = [
    [b"%c" % b"abc?de_f!gh"[row * (client + 3) % 11] + b"~" * (row % 50) for row in range(60)]
    for client in range(2)
]


def traces() -> list[str]:
    """The trace of a run with the echo service, and of one with a service of a user."""
    return [
        run(payloads, is_compiled=True, service=service).world.trace.hash
        for payloads, service in ((PAYLOADS, EchoService), (COUNTED, Counter))
    ]


if __name__ == "__main__":
    print(*traces())
    sys.exit(0)
