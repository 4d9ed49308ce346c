"""Backups of the simulation: the production agent and directory, on a machine of its own.

Half of them are standbys: they run the members' services. A backup asks the members over the simulated
network, and copies from those that it can reach. It is killed and loses power as members do. At the end a
cluster of one member is restored from it, and started.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from cluster.backup.agent import BackupContext, ClusterBackupAgent
from cluster.backup.announcements import Announcements
from cluster.backup.counters import BackupCounters, StandbyCounters
from cluster.backup.directory import BackupDirectory
from cluster.backup.standby import Standby
from cluster.consensus.context import ConsensusModuleContext
from cluster.counters import CountersFile
from cluster.protocol import link
from cluster.protocol.backup import StandbySnapshot
from cluster.reader.member_request import MemberRequest
from cluster.reader.member_supplier import MemberSupplier
from cluster.reader.supplier import SourceType
from cluster.testing.client import ClientWorld
from cluster.testing.disk import SimulatedFiles
from cluster.testing.member import CLUSTER_ID
from cluster.testing.network import Network, SimulatedPoller
from cluster.testing.world import MS, SECOND
from cluster.transport.credentials import FixedCredentials
from cluster.transport.endpoint import Endpoint
from cluster.transport.log_client import Answer, RecordingAnswer, Unreachable
from tests.backup.inline_host import host_inline
from tests.backup.served_log import ServedLog
from tests.simulation.disk import FaultyDisk
from tests.simulation.service import ChainService
from tests.simulation.world import FaultyClock, Mortal, World

if TYPE_CHECKING:
    from tests.simulation.member import Member

HOST = "10.0.4.1"
ENDPOINT = f"{HOST}:9100"  # where members fetch a standby's snapshots (standbys.py)
DIRECTORY = "/backup"
SEGMENT_LENGTH = 8 * 1024 * 1024  # a simulated disk holds all of a file, and a standby keeps each snapshot
TICK_NS = 50 * MS
TURN_NS = 20_000
DOWN_MAX_NS = 6 * SECOND
PROCESS_ID = 8_000
KINDS = [SourceType.ANY, SourceType.ANY, SourceType.LEADER, SourceType.FOLLOWER]


class BackupObserver:
    """What the invariants want to hear of a backup."""

    def on_bound(self, member_id: int, bound: int) -> None: ...

    def on_copied(self, backup: Backup, life: BackupLife) -> None: ...

    def on_applied(self, backup: Backup, service_id: int, position: int, chain: int) -> None: ...

    def on_killed(self, backup: Backup) -> None: ...


class Backup:
    """One backup, a life after the other on its disk."""

    def __init__(
        self,
        world: World,
        network: Network,
        members: Mapping[int, Member],
        endpoints: Mapping[int, Endpoint],
        random: Random,
        observer: BackupObserver,
        members_context: ConsensusModuleContext,
    ) -> None:
        is_standby = world.random("standbys").random() < 0.5
        self.standby_context = (
            replace(members_context, member_id=-1, member_ids=(-1,), is_standby=True) if is_standby else None
        )
        self.announces = is_standby and members_context.accept_standby_snapshots
        self.world = world
        self.network = network
        self.members = members
        self.endpoints = endpoints
        self.random = random
        self.observer = observer
        self.disk = FaultyDisk(world, world.random("backup's disk"))
        self.clock = FaultyClock(world, skew_ns=random.randrange(-2 * SECOND, 2 * SECOND))
        self.context = BackupContext(
            cluster_id=CLUSTER_ID,
            source_type=random.choice(KINDS if len(endpoints) > 1 else [SourceType.ANY]),
            interval_ns=random.choice([1, 4]) * SECOND,
            response_timeout_ns=SECOND,
            cool_down_interval_ns=random.choice([200, 1_000]) * MS,
        )
        self.life: BackupLife | None = None
        self.lives = 0
        self.is_over = False  # it is not started again

    def start(self) -> None:
        self.lives += 1
        self.network.revive(HOST)
        self.life = BackupLife(self)
        self.life.wake(self.world.now_ns)

    @property
    def position(self) -> int:
        """Up to where it shows to have the log safe; 0 of one that does not run."""
        counters = None if self.life is None else self.life.counters
        return 0 if counters is None else counters.live_log_position.get()

    def faults(self) -> dict[str, Callable[[], str | None]]:
        """What the nemesis does to it, by name."""
        return {
            "kill the backup": self.kill,
            "kill the backup in a turn": self._kill_in_turn,
            "power cut of the backup": self._cut_power,
        }

    def kill(self) -> str | None:
        if self.life is None:
            return None
        self.life.kill()
        return "between two turns"

    def _kill_in_turn(self) -> str | None:
        if self.life is None:
            return None
        effects = self.random.randint(1, 200)
        self.life.loses_power = self.random.random() < 0.5
        self.life.die_soon(effects)
        return f"at its effect {effects} from now"

    def _cut_power(self) -> str | None:
        if self.life is not None:
            self.life.loses_power = True
        return self.kill()

    def on_life_ended(self) -> None:
        self.life = None
        self.observer.on_killed(self)
        if not self.is_over:
            self.world.at(self.world.now_ns + self.random.randrange(DOWN_MAX_NS), self.start)

    def end(self) -> None:
        """Be killed for good."""
        self.is_over = True
        self.kill()


class BackupLife(Mortal):
    """One process of a backup."""

    def __init__(self, backup: Backup) -> None:
        super().__init__(backup.world, HOST, "backup")
        self.agent: ClusterBackupAgent | None = None
        self.directory: BackupDirectory | None = None
        self.counters: BackupCounters | None = None
        self.standby: Standby | None = None
        self.announcements: Announcements | None = None
        self.poller = SimulatedPoller(backup.network, self)
        self.tokens = backup.random
        self.loses_power = False
        self._backup = backup

    def turn(self) -> int:
        self.spend(TURN_NS)
        if self.agent is None:
            self._open()
        assert self.agent is not None
        self.poller.wait(0)
        work_count = self.agent.do_work(self.now_ns, self._epoch_ms())
        if self.standby is not None:
            work_count += self.standby.do_work(self.now_ns, is_retrieving=self.agent.is_retrieving)
        if self.announcements is not None:
            work_count += self.announcements.do_work(self.now_ns)
        self._backup.observer.on_copied(self._backup, self)
        return 0 if work_count else TICK_NS

    def _open(self) -> None:
        backup = self._backup
        self.directory = BackupDirectory(
            DIRECTORY,
            SimulatedFiles(backup.disk, self, PROCESS_ID + backup.lives),
            cluster_id=CLUSTER_ID,
            file_sync_level=1,
            epoch_ms=self._epoch_ms,
            say=self.say,
            segment_length=SEGMENT_LENGTH,
        )
        self.counters = BackupCounters(CountersFile.in_memory(), CLUSTER_ID)
        self.agent = ClusterBackupAgent(
            backup.context,
            self.directory,
            [self._supplier(member_id) for member_id in backup.endpoints],
            self.counters,
            backup.random,
            on_event=self.say,
            on_error=lambda error: self.say(f"{type(error).__name__}: {error}"),
        )

        if backup.standby_context is not None:
            self.standby = Standby(
                backup.standby_context,
                self.directory,
                StandbyCounters(self.counters, CLUSTER_ID),
                lambda life: host_inline(life, self._service),
                on_event=self.say,
                on_error=lambda error: self.say(f"{type(error).__name__}: {error}"),
                on_snapshot=lambda position: self._announce(),
            )
        if backup.announces:
            self.announcements = Announcements(
                {f"member {i}": partial(self._request, at) for i, at in backup.endpoints.items()},
                self.directory.recording_log,
                ENDPOINT,
                backup.standby_context.service_count if backup.standby_context else 0,
                backup.context,
                on_event=self.say,
                on_error=lambda error: self.say(f"{type(error).__name__}: {error}"),
            )

    def _announce(self) -> None:
        if self.announcements is not None:
            self.announcements.announce()

    def _request(self, endpoint: Endpoint, snapshot: StandbySnapshot) -> MemberRequest:
        return MemberRequest(endpoint, ClientWorld(self), FixedCredentials(b""), CLUSTER_ID, snapshot)

    def _service(self, service_id: int) -> ChainService:
        backup = self._backup
        return ChainService(service_id, partial(backup.observer.on_applied, backup))

    def _supplier(self, member_id: int) -> MemberSupplier:
        backup = self._backup
        client = SimulatedLogClient(self, backup, member_id)
        return MemberSupplier(
            backup.endpoints[member_id], client, ClientWorld(self), FixedCredentials(b""), CLUSTER_ID
        )

    def _epoch_ms(self) -> int:
        return self._backup.clock.epoch_ms(self.now_ns)

    def on_killed(self) -> None:
        backup = self._backup
        if self.loses_power:
            self.say("loses power")
            backup.network.silence(HOST)
            backup.network.on_power_cut(self.poller)
            backup.disk.power_cut()
        else:
            self.say("is killed")
            backup.disk.on_process_died(self)
            backup.network.on_killed(self.poller)
        backup.on_life_ended()


class SimulatedLogClient:
    """``LogClient`` of a member that can be reached: it answers at once, out of the files on its disk."""

    def __init__(self, process: Mortal, backup: Backup, member_id: int) -> None:
        self._process = process
        self._backup = backup
        self._member_id = member_id
        self._log: ServedLog | None = None
        self._incarnation = -1  # of the process that has opened it

    def _reached(self) -> Member:
        member = self._backup.members.get(self._member_id)
        if member is None or not member.is_alive or not member.is_up:
            raise Unreachable(f"member {self._member_id} does not run")
        if member.is_paused or self._is_cut_off(member.host):
            raise Unreachable(f"member {self._member_id} does not answer")
        return member

    def _is_cut_off(self, host: str) -> bool:
        network = self._backup.network
        return network.path(HOST, host).is_blocked or network.path(host, HOST).is_blocked

    def _open(self) -> ServedLog:
        member = self._reached()
        if self._log is None or self._incarnation != member.incarnation:
            files = SimulatedFiles(member.disk, self._process, PROCESS_ID)
            self._log = ServedLog(member, member.directory, files, CLUSTER_ID)
            self._incarnation = member.incarnation
        return self._log

    def status(self) -> link.LogStatus:
        status = self._open().status()
        self._backup.observer.on_bound(self._member_id, status.commit_position)
        return status

    def control(self, request: link.ControlRequest, timeout_s: float) -> link.ControlOutcome:
        raise AssertionError("a backup asks for nothing of the kind")

    def read(self, from_position: int, to_position: int, max_bytes: int) -> Iterator[Answer]:
        for answer in self._open().read(from_position, to_position, self._block_bytes()):
            self._reached()
            yield answer

    def read_recording(self, recording_id: int) -> Iterator[RecordingAnswer]:
        for answer in self._open().read_recording(recording_id, self._block_bytes()):
            self._reached()
            yield answer

    def _block_bytes(self) -> int:
        return self._backup.random.choice([1_024, 64 * 1024])

    def close(self) -> None:
        self._log = None
