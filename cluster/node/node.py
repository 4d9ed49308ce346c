"""A member in one thread of a process, from its first life to its end.

    ClusterNode ── AgentRunner, one thread ──▶ ConsensusModuleAgent, services, and the node's own part
         └── MemberLife (``life.py``) over Machine (``machine.py``): what they are made of

Nothing is decided here: what a member does is in ``cluster/member/`` and ``cluster/service/``. When the disk
fails them they are taken apart and, later, put together again in the same process (``disk_failures.py``): a
process has one life after the other.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, Self

from cluster.archive.files import OsFiles
from cluster.archive.mark_files import ClusterMarkFile
from cluster.errors import (
    FATAL,
    ClusterError,
    ConfigurationError,
    MemberRestart,
    UnexpectedError,
)
from cluster.member.busy.words import TIME
from cluster.member.counters import MemberCounters
from cluster.node import config_text
from cluster.node.config import NodeConfig, fields_of
from cluster.node.descriptors import fit_descriptors
from cluster.node.disk_failures import SURVIVED, DiskFailures, unexpected
from cluster.node.exposure import check_exposure
from cluster.node.hosted_service import OnServiceError
from cluster.node.life import MemberLife
from cluster.node.machine import Machine, member_tls_of
from cluster.node.memory import check_address_space
from cluster.node.message_trace import MessageTrace
from cluster.node.metrics_process import MetricsProcess
from cluster.node.node_log import NodeLog
from cluster.node.own_name import await_own_names, warn_of_loopback
from cluster.node.ports import LifeSettings
from cluster.node.reload import reload
from cluster.node.runner import AgentRunner, cluster_clock
from cluster.protocol.enums import ClusterComponentType, ClusterControlToggle, ElectionState, Role
from cluster.security.audit import AuditLog
from cluster.security.loading import load_security
from cluster.security.reader_admission import ReaderAdmission
from cluster.transport.clock import epoch_ms
from cluster.transport.names import Names
from cluster.transport.poller import Poller, Target

HOUSEKEEPING_INTERVAL_NS = 1_000_000_000
CLOSE_TIMEOUT_S = 10.0


class ClusterNode:
    """One member. ``launch`` runs it in a thread of its own, ``run`` in the caller's.

    ``on_leader`` is called whenever this member starts or stops leading. ``on_service_error`` is called for
    errors of services: for the first of each kind, and whenever their number has doubled.
    """

    def __init__(
        self,
        config: NodeConfig,
        on_leader: Callable[[bool], None] = lambda is_leader: None,
        on_service_error: OnServiceError = lambda error, count: None,
        read_config: Callable[[], NodeConfig] | None = None,
    ) -> None:
        """``read_config`` reads the configuration again, for ``reload``.

        Raises DirectoryInUse, PortInUse, LogDamaged, StorageError, ConfigurationError.
        """
        self.config = config
        self.error: ClusterError | None = None  # why the member ended, or did not end in order
        self._on_leader = on_leader
        self._read_config = read_config
        self._thread: threading.Thread | None = None
        self.is_leader = False  # its election being over
        self._is_orderly = False
        self._is_stop_asked = False
        self._is_reload_asked = False
        self.is_restart_asked = False
        self._began_ns = 0
        self._errors_before = 0  # counted in earlier lives
        self._refused_count = 0
        self._failures = DiskFailures()
        self._next_housekeeping_ns = 0
        self._silent: set[int] = set()  # of the other members
        self._clock = cluster_clock(config.cluster_clock)
        self._opened = ExitStack()  # what the process has
        self._life: MemberLife | None = None  # what it has until its disk fails
        try:
            self._open_log()
            try:
                self._open(on_service_error)
                self._begin_life()
            except ClusterError as error:
                self.log.error("start", error)
                raise
        except BaseException:
            self._opened.close()
            raise

    @classmethod
    def launch(cls, config: NodeConfig | str | os.PathLike[str] | None = None, **keys: Any) -> ClusterNode:
        """Run a member in a thread: ``launch(dir="m0", ...)``. As a context manager it listens within."""
        if not isinstance(config, NodeConfig):
            config = config_text.load(config, overrides=keys)
        elif keys:
            raise ConfigurationError(f"give {', '.join(keys)} within the NodeConfig, or a file instead of it")
        node = cls(config)
        node._thread = threading.Thread(
            target=node._run_in_thread, name=f"cluster-{config.member_id}", daemon=True
        )
        node._thread.start()
        return node

    # -- putting together --

    def _open_log(self) -> None:
        """Take the directory, and say from here on in its node.log what happens."""
        config = self.config
        check_address_space()
        waited = await_own_names(config)
        check_exposure(config)
        self._mark_file = ClusterMarkFile.create(
            str(config.cluster_path),
            files=OsFiles(),
            component_type=ClusterComponentType.CONSENSUS_MODULE,
            now_ms=epoch_ms(),
            cluster_id=config.cluster_id,
            member_id=config.member_id,
            aeron_directory=str(config.driver_path),
            ingress_channel="aeron:udp",
        )
        self._opened.callback(self._close_mark_file)
        self.log = NodeLog(
            config.path / "node.log", config.log_level, config.node_log_bytes, member=config.member_id
        )
        self._opened.callback(self.log.close)
        self._trace = MessageTrace(self.log, config.member_id, time.monotonic_ns)
        self.log.info("starts", pid=os.getpid(), dir=str(config.path), python=sys.version.split()[0])
        for line in waited:
            self.log.warning(line)
        warn_of_loopback(config, self.log.warning)

    def _open(self, on_service_error: OnServiceError) -> None:
        config = self.config
        tls = member_tls_of(config)
        self._audit = AuditLog(str(config.path / "audit.log"))
        self._opened.callback(self._audit.close)
        on_error = partial(self._on_error, "authentication")
        security = load_security(config, on_error, self._on_refused, self._audit.administered)
        self._readers = ReaderAdmission(security, lambda: self._poller.wake(), is_open=config.is_open)
        self._bounds, reduced = fit_descriptors(config.bounds)
        if reduced:
            self.log.warning("strangers get less than was configured", why=reduced)
        self._poller = Poller(Names(on_event=self.log.info))
        self._opened.callback(self._poller.close)
        self._metrics = MetricsProcess(config, self._poller, self.log.warning)
        self._opened.callback(self._metrics.close)
        self._runner = AgentRunner(
            self,
            self._poller,
            self._clock,
            spin_ns=config.idle_spin_ns,
            turn_busily=self._turn_busily,
            next_due_ns=self._next_due_ns,
        )
        self._settings = _settings(config)
        self._machine = Machine(
            config,
            OsFiles(),
            self._mark_file,
            self._poller,
            self._bounds,
            self.log,
            security,
            tls,
            self._readers.ask,
            on_service_error=on_service_error,
            on_error=self._on_error,
            restart=self.restart,
        )

    def _begin_life(self) -> None:
        """Put a life together, and let it recover what the disk has. Raises what that raises."""
        life = MemberLife(self._settings, self._machine, self._failures)
        try:
            if self.config.grpc_gateway == "thread":
                life.opened.callback(self._machine.open_gateway().stop)
            if self.config.aeron_channels:
                life.opened.callback(self._machine.open_aeron().stop)
            if self.config.aeron_archive:
                life.opened.callback(self._machine.open_aeron_archive().stop)
            life.counters.errors.set(self._errors_before)
            self._began_ns = time.monotonic_ns()
            self._trace.follow(life)
            life.start(self._began_ns, self._clock())
        except BaseException:
            life.abandon()
            raise
        self._life = life

    # -- running --

    @property
    def is_running(self) -> bool:
        """Whether the thread of a launched member is running."""
        return self._thread is not None and self._thread.is_alive()

    def run(self) -> None:
        """Run the agents until ``stop``, an orderly shutdown, or an error that ends the member.

        If a disk fails, or has a newer state from another member, the agents start again once it works, and
        the member goes on. At the end everything is closed. Raises ClusterError if an error ended the member.
        """
        with self._opened:
            try:
                self._run_lives()
                self._end_in_order()
            except ClusterError as error:
                self._machine.record(self._mark_file, "member", error)
                self.error = error
                raise
            except BaseException as error:
                self._machine.record(self._mark_file, "member", error)
                raise
            finally:
                if self._life is not None:
                    self._life.abandon()
                self.log.info("ends", in_order=self._is_orderly)

    def _run_lives(self) -> None:
        while not self._is_stop_asked:
            try:
                self._turn_life()
                return
            except SURVIVED as error:
                if not self._failures.is_survived(error, is_alone=self._settings.is_alone):
                    raise
                self._end_life(error)
                self._begin_again()

    def _end_in_order(self) -> None:
        """Close the agents, then what they used. Raises StorageError."""
        life, self._life = self._life, None
        if life is not None:
            life.close(time.monotonic_ns(), self._clock())
        self._is_orderly = True

    def _turn_life(self) -> None:
        """Turn until the member is to stop. What no turn is meant to raise comes out as UnexpectedError."""
        try:
            self._runner.run()
        except FATAL:
            raise
        except Exception as error:
            assert self._life is not None
            raise self._life.unexpected(error) from error

    def _end_life(self, error: ClusterError) -> None:
        """Let go of everything, as a process that dies: others notice it by their links, and elect."""
        life = self._life
        assert life is not None
        if not isinstance(error, MemberRestart):
            self._record_end(error)
            life.counters.errors.get_and_add(1)
        self._errors_before = life.counters.errors.get()
        if self.is_leader:
            self._on_leader(False)
        self.is_leader = False
        now_ns = time.monotonic_ns()
        pause_ns = self._failures.on_failure(error, now_ns - self._began_ns, now_ns)
        self._life = None
        life.abandon()
        self.log.warning(
            "acknowledges nothing more, and is started again", why=str(error), pause_ms=pause_ns // 10**6
        )

    def _begin_again(self) -> None:
        """Wait until the disk is well, or until this member is to stop; whoever asks is still heard."""
        while not self._is_stop_asked:
            self._reload_if_asked()
            left_ns = self._failures.due_ns - time.monotonic_ns()
            if left_ns > 0:
                self._poller.wait(min(left_ns, HOUSEKEEPING_INTERVAL_NS) / 1e9)
                continue
            is_survived = partial(self._failures.is_survived, is_alone=self._settings.is_alone)
            failure = self._failures.begin_again(self._begin_life, is_survived, time.monotonic_ns)
            if failure is None:
                _forget_unused()
                return
            self._record_end(failure)

    def _record_end(self, error: ClusterError) -> None:
        where = "consensus module" if isinstance(error, UnexpectedError) else "disk"
        self._machine.record(self._mark_file, where, error)

    def _run_in_thread(self) -> None:
        try:
            self.run()
        except ClusterError as error:
            self.error = error
        except Exception as error:
            self.error = unexpected(error, "outside of its turns")

    def stop(self) -> None:
        """Ask the member to end cleanly, from any thread or a signal handler."""
        self._is_stop_asked = True
        self._runner.stop()

    def restart(self) -> None:
        """Ask the member to end as by ``stop``, and to be started again by whoever runs its process.

        ``is_restart_asked`` is true from then on. Raises ClusterError if the member was launched in a thread.
        """
        if self._thread is not None:
            raise ClusterError(f"member {self.config.member_id} runs within a program, which starts it again")
        self.is_restart_asked = True
        self.stop()

    def reload(self) -> None:
        """Open the logs and read the configuration again within a second. Safe in signal handlers."""
        self._is_reload_asked = True

    def watch(self, fd: int, events: int, target: Target) -> None:
        """Have the member's thread notify ``target`` of a descriptor's epoll events."""
        self._poller.register(fd, target, events)

    def unwatch(self, fd: int) -> None:
        """Undo ``watch``."""
        self._poller.unregister(fd)

    def terminate_cluster(self) -> bool:
        """End the whole cluster cleanly (Aeron: ABORT); False if this member does not lead."""
        life = self._life
        if life is None or not self.is_leader:
            return False
        return life.consensus_module.parts.toggles.request(ClusterControlToggle.ABORT)

    def close(self) -> None:
        """End a launched member cleanly, and wait for it. Raises the error that it ended with, if any."""
        self.stop()
        if self._thread is not None:
            self._thread.join(CLOSE_TIMEOUT_S)
        if self.error is not None:
            raise self.error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def do_work(self, now_ns: int, cluster_time: int) -> int:
        """Take one turn of the present life, then the node's own part: say how the member stands."""
        life = self._life
        assert life is not None
        work_count = life.do_work(now_ns, cluster_time) + self._readers.do_work(epoch_ms())
        self._report_leadership(life.counters)
        if now_ns >= self._next_housekeeping_ns:
            self._next_housekeeping_ns = now_ns + HOUSEKEEPING_INTERVAL_NS
            self.log.report_repeated(now_ns)
            self._reload_if_asked()
            self._trace.follow(life)
            self._machine.refresh_certificates()
            self._show(life)
            life.update_activity()
            self._metrics.do_work(now_ns)
        life.counters_file.drain_commands()
        if life.consensus_module.is_closed:
            self.stop()
        return work_count

    def _reload_if_asked(self) -> None:
        """Go on in the log files that have the names now, and by what the configuration says now."""
        if not self._is_reload_asked:
            return
        self._is_reload_asked = False
        self.log.reopen_with(self._audit)
        if self._read_config is not None:
            parts = (self._settings.context, self._bounds)
            self.config = reload(self.config, self._read_config, parts, self.log)

    def _show(self, life: MemberLife) -> None:
        """What is counted elsewhere, for those who read the counters file."""
        counters, machine = life.counters, self._machine
        counters.certificate_end_ms.set(machine.certificate_end_ms)
        counters.client_connections.set(machine.connection_count)
        counters.log_readers.set(machine.reader_count)
        counters.cut_off_peers.set(machine.cut_off_count)
        counters.refusals.set(self._refused_count)
        counters.show_table(life.consensus_module.replica.sessions.table)
        for peer in counters.links_up:
            is_up = life.links.is_up(peer) and not self._is_silent(life, peer)
            queued_bytes, refused = life.links.queued_bytes(peer), life.links.refused_certificate(peer)
            counters.show_link(peer, is_up=is_up, queued_bytes=queued_bytes, refused=refused)

    def _is_silent(self, life: MemberLife, peer: int) -> bool:
        """Whether nothing comes over a link, long before it is closed for that; node.log says so."""
        is_silent = life.links.silence_ns(peer) >= self._settings.context.link_timeout_ns // 4
        if is_silent and peer not in self._silent:
            why = "its process was stopped or stalls, or the network between is cut"
            self.log.warning(f"nothing comes from member {peer}", why=why)
            self._silent.add(peer)
        elif not is_silent and peer in self._silent and life.links.is_up(peer):
            self.log.info(f"member {peer} is heard again")
            self._silent.discard(peer)
        return is_silent

    def _turn_busily(self) -> bool | None:
        """Take turns in compiled code; whether a socket may have what ended them, None: there were none."""
        if self._life is None or self._trace.life is not None:  # compiled code says nothing of messages
            return None
        reason = self._life.turn_busily()
        return None if reason is None else reason != TIME

    @property
    def awaits_events(self) -> bool:
        """Whether another turn would find nothing to do but what a socket or time gives it."""
        return self._life is not None and self._life.awaits_events

    def _next_due_ns(self) -> int:
        assert self._life is not None
        return self._life.next_due_ns

    def _report_leadership(self, counters: MemberCounters) -> None:
        is_leader = (
            counters.node_role.get() == Role.LEADER and counters.election_state.get() == ElectionState.CLOSED
        )
        if is_leader != self.is_leader:
            self.is_leader = is_leader
            self._on_leader(is_leader)

    def _close_mark_file(self) -> None:
        if self._is_orderly:
            self._mark_file.close()
        else:
            self._mark_file.abandon()

    # -- errors --

    def _on_error(self, where: str, error: Exception) -> None:
        """A file that is read again has become wrong, or a user's class has raised."""
        if self._life is not None:
            self._life.counters.errors.get_and_add(1)
        self._machine.record(self._mark_file, where, error)

    def _on_refused(self, peer: str, encoded_principal: bytes, what: str, why: str) -> None:
        self._refused_count += 1
        self._audit.refused(peer, encoded_principal, what, why)


def _forget_unused() -> None:
    """Free what an ended life has left, which may have been put out of the collector's sight."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def _settings(config: NodeConfig) -> LifeSettings:
    """What lives go by: keys under their own names, and what follows from others."""
    return LifeSettings(
        **fields_of(
            config,
            LifeSettings,
            context=config.module_context,
            archive_directory=str(config.archive_path),
            cluster_directory=str(config.cluster_path),
            driver_directory=str(config.driver_path),
        )
    )
