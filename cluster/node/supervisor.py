"""Several members as child processes of one: started together, watched, stopped together.

    supervisor --fork--> member 0 .. n-1       everything is imported before, so that a member starts at once
               <-lines-- {"event": ...}        listening, leader, service-error, failed: what members tell
               --lines-> {"command": ...}      terminate (the cluster, told to its leader) or stop (a member)

A member that ends with RESTART_STATUS is started again, by a new interpreter; any other is not.
A member whose supervisor is gone ends: its kernel sends SIGTERM, and its socket is at its end.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import select
import shutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from cluster.archive.files import FILE_MODE, make_directories
from cluster.errors import StorageError, StorageErrors

if TYPE_CHECKING:
    from cluster.node.config import NodeConfig

    Entry = Callable[[NodeConfig, socket.socket], int]

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15

# Of the ten seconds of an orderly stop: how long the leader has to get its followers to its end, and
# how long every member has to stop by itself afterwards.
TERMINATE_TIMEOUT_S = 5.0
STOP_TIMEOUT_S = 8.5

RESTART_STATUS = 75  # sysexits.h: try again
RESTART_SIGNAL = signal.SIGRTMIN  # which nobody sends by habit, as they send SIGHUP after a rotation of logs


@dataclass
class Member:
    """One child process, and what it has reported."""

    config: NodeConfig
    pid: int
    link: socket.socket
    is_listening: bool = False
    is_leader: bool = False
    status: int | None = None  # of its exit, negative for a signal; None while it runs
    error: str = ""
    service_errors: list[dict[str, Any]] = field(default_factory=list)  # reported, and to be taken
    _received: bytes = field(default=b"", repr=False)

    @property
    def member_id(self) -> int:
        return self.config.member_id

    def receive(self) -> Iterator[dict[str, Any]]:
        """What has come over its socket, line by line."""
        try:
            while data := self.link.recv(65_536):
                self._received += data
        except OSError:
            pass  # no more for now, or it ended with a command unread: what it had said came before
        *lines, self._received = self._received.split(b"\n")
        yield from (json.loads(line) for line in lines)

    def send(self, command: str) -> None:
        """Ask it for something; a member that is gone does not hear."""
        say(self.link, command=command)


class Supervisor:
    """Runs ``entry(config, link)`` in a process of each member, ``entry_again`` in one that starts again."""

    def __init__(self, configs: list[NodeConfig], entry: Entry, entry_again: Entry) -> None:
        self.members: list[Member] = []
        self._signals = _SignalPipe()
        self._epoll = select.epoll()
        self._epoll.register(self._signals.fd, select.EPOLLIN)
        self._entry_again = entry_again
        for config in configs:
            self.members.append(self._start(config, entry))

    def _start(self, config: NodeConfig, entry: Entry) -> Member:
        member = _fork(config, entry, self._inherited_fds())
        self._epoll.register(member.link, select.EPOLLIN)
        return member

    def start_again(self, member: Member) -> None:
        """Start one that has ended, by a new interpreter; another Member takes its place in ``members``."""
        assert member.status is not None
        self.members[self.members.index(member)] = self._start(member.config, self._entry_again)

    def _inherited_fds(self) -> list[int]:
        return [self._epoll.fileno(), *self._signals.fds, *(member.link.fileno() for member in self.running)]

    @property
    def running(self) -> list[Member]:
        return [member for member in self.members if member.status is None]

    @property
    def leader(self) -> Member | None:
        """Who said last that it leads, and runs."""
        return next((member for member in self.running if member.is_leader), None)

    @property
    def is_asked_to_stop(self) -> bool:
        """Whether SIGTERM or SIGINT came."""
        return self._signals.is_asked_to_stop

    def poll(self, timeout_s: float) -> list[Member]:
        """Wait for news at most so long; returns the members that have ended since, and stay so."""
        try:
            self._epoll.poll(timeout_s)
        except InterruptedError:
            pass
        self._signals.drain()
        for member in self.running:
            bound_output(output_of(member.config), member.config.node_log_bytes)
            for message in member.receive():
                self._on_message(member, message)
        ended = []
        for member in self.running:
            pid, status = os.waitpid(member.pid, os.WNOHANG)
            if pid:
                for message in member.receive():
                    self._on_message(member, message)
                member.status = os.waitstatus_to_exitcode(status)
                self._epoll.unregister(member.link)
                member.link.close()
                if member.status == RESTART_STATUS and not self.is_asked_to_stop:
                    self.start_again(member)
                else:
                    ended.append(member)
        return ended

    def _on_message(self, member: Member, message: dict[str, Any]) -> None:
        match message:
            case {"event": "listening"}:
                member.is_listening = True
            case {"event": "leader", "isLeader": is_leader}:
                if is_leader:
                    for other in self.members:
                        other.is_leader = False
                member.is_leader = is_leader
            case {"event": "service-error"}:
                member.service_errors.append(message)
            case {"event": "failed", "error": error}:
                member.error = error

    def stop(self) -> bool:
        """End all members in order within ten seconds; whether all ended with status 0."""
        began = time.monotonic()
        leader = self.leader
        if len(self.running) <= len(self.members) // 2:
            leader = None  # of a minority: nothing that it appends now can be committed
        if leader is not None:
            leader.send("terminate")
        is_stop_sent = False
        while self.running:
            elapsed = time.monotonic() - began
            is_led = leader is not None and leader.status is None and elapsed < TERMINATE_TIMEOUT_S
            if not is_stop_sent and not is_led:
                # Without a leader there is no common end to reach; each closes where it is.
                is_stop_sent = True
                for member in self.running:
                    member.send("stop")
            if elapsed > STOP_TIMEOUT_S:
                for member in self.running:
                    member.error = "did not stop in time and was killed"
                    os.kill(member.pid, signal.SIGKILL)
            self.poll(0.1)
        return all(member.status == 0 for member in self.members)


def _fork(config: NodeConfig, entry: Entry, fds_of_parent: list[int]) -> Member:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    sys.stdout.flush()
    sys.stderr.flush()
    parent_pid = os.getpid()
    pid = os.fork()
    if pid == 0:
        ours.close()
        for fd in fds_of_parent:
            os.close(fd)
        _be_member(config, entry, theirs, parent_pid)
    theirs.close()
    return Member(config, pid, ours)


def _be_member(config: NodeConfig, entry: Entry, link: socket.socket, parent_pid: int) -> NoReturn:
    """The rest of a child process's life."""
    status = 1
    try:
        os.setsid()  # a Ctrl-C at the terminal is the supervisor's business
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        name_process(config.member_id)
        die_with(parent_pid, signal.SIGTERM)
        _redirect(output_of(config))
        status = entry(config, link)
    except StorageError as error:
        say(link, event="failed", error=str(error))
    except BaseException as error:
        traceback.print_exc()
        say(link, event="failed", error=f"{type(error).__name__}: {error}")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def name_process(member_id: int) -> None:
    """As ``ps`` and ``top`` show it."""
    ctypes.CDLL(None).prctl(PR_SET_NAME, f"cluster-{member_id}".encode())


def die_with(parent_pid: int, number: signal.Signals) -> None:
    """Have this process sent the signal when its parent dies; end it if that has happened."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent_pid:
        os._exit(1)


def output_of(config: NodeConfig) -> Path:
    """The file with what a member's services and libraries print."""
    return config.path / "output.log"


def bound_output(path: Path, bytes_max: int) -> None:
    """Beyond ``bytes_max`` it is copied to ``PATH.1`` and emptied: processes of services write to it too."""
    try:
        if path.stat().st_size > bytes_max:
            shutil.copyfile(path, f"{path}.1")
            os.truncate(path, 0)
    except OSError:
        pass  # a disk that is full, or a folder that is gone: the next look may find it otherwise


def _redirect(path: Path) -> None:
    """What libraries print goes to a file."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    with StorageErrors(path, "cannot be opened"):
        make_directories(path.parent)
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, FILE_MODE)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


def say(link: socket.socket | None, **message: Any) -> None:
    """Send one line to the other side; without a supervisor, or when it is gone, nobody hears it."""
    if link is not None:
        try:
            link.send(json.dumps(message).encode() + b"\n")
        except OSError:
            pass


def ignore_signals_at_exit() -> None:
    """Let no further Ctrl-C kill a process that has ended in order: the interpreter drops handlers first."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        atexit.register(signal.signal, number, signal.SIG_IGN)


class _SignalPipe:
    """SIGTERM, SIGINT, SIGHUP and SIGCHLD as bytes in a pipe, so that one wait is for everything."""

    def __init__(self) -> None:
        self.fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.is_asked_to_stop = False
        signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, self._on_signal)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            signal.signal(signal.SIGHUP, self._on_signal)
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
        ignore_signals_at_exit()

    @property
    def fds(self) -> list[int]:
        return [self.fd, self._write_fd]

    def _on_signal(self, number: int, frame: object) -> None:
        if number != signal.SIGCHLD:
            self.is_asked_to_stop = True

    def drain(self) -> None:
        try:
            while os.read(self.fd, 4096):
                pass
        except BlockingIOError:
            pass
