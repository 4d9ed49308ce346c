"""A member that is its whole process: signals, the supervisor's commands, memory, exit status."""

import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from typing import NoReturn

from cluster.errors import ClusterError, ServiceError
from cluster.log.append import message_end_position
from cluster.log.frames import LogParams
from cluster.node import config_text, signals
from cluster.node.config import NodeConfig
from cluster.node.hosted_service import OnServiceError
from cluster.node.memory import settle_memory
from cluster.node.node import ClusterNode
from cluster.node.service_errors import service_error_fields
from cluster.node.service_manager import ServiceManager
from cluster.node.supervisor import RESTART_SIGNAL, RESTART_STATUS, ignore_signals_at_exit, name_process, say
from cluster.service.service_loader import load_service

GATEWAY_MODULES = (
    "cluster.transport.grpc_gateway",
    "cluster.reader.served_member",
    "grpc_health.v1.health",
    "grpc_reflection.v1alpha.reflection",
)

# How long a thread may keep the interpreter lock from another: a turn is shorter.
SWITCH_INTERVAL_S = 0.0005


def warm_up(config: NodeConfig) -> None:
    """Load what every member needs, before they are forked; ConfigurationError for unknown services."""
    for name in config.services:
        load_service(name)
    # The first call of any kernel makes numba look at numpy's array types, which takes a tenth of a second.
    message_end_position(0, 64, LogParams(config.log_term_length, config.log_mtu, 0, 0))
    if config.grpc_gateway == "thread":
        for name in GATEWAY_MODULES:
            importlib.import_module(name)
    if config.aeron_channels:
        importlib.import_module("cluster.aeron.aeron_ingress")
    if config.consensus_channel != "none":
        importlib.import_module("cluster.aeron.aeron_links")
    settle_memory()


def run(
    config: NodeConfig,
    link: socket.socket | None = None,
    on_listening: Callable[[], None] = lambda: None,
    on_service_error: OnServiceError = lambda error, count: None,
    read_config: Callable[[], NodeConfig] | None = None,
) -> int:
    """Run the member until a signal or its supervisor ends it; returns the exit status.

    That is RESTART_STATUS after RESTART_SIGNAL, or when an administrator asks for it: whoever runs the member
    is to start it again.

    ``link`` leads to a supervisor (``supervisor.py``). An error that ends the member is told there, or
    raised without one. ``on_listening`` is called when clients and other members can connect, and
    ``on_service_error`` as by ClusterNode, where there is no supervisor to be told. ``read_config`` is for
    SIGHUP; a supervisor's members read their node.toml.
    """
    signals.pass_over()
    manager = ServiceManager({} if link is not None else os.environ)  # of a supervisor it is none of ours
    try:
        node = ClusterNode(
            config,
            on_leader=lambda is_leader: say(link, event="leader", isLeader=is_leader),
            on_service_error=on_service_error if link is None else partial(_report_service_error, link),
            read_config=read_config if link is None else partial(_read_file, config.path / "node.toml"),
        )

        def stop() -> None:
            manager.notify("STOPPING=1")
            node.stop()

        signal.signal(RESTART_SIGNAL, lambda *_: node.restart())
        signals.answer(node.log, node.reload)
        for number in (signal.SIGTERM, signal.SIGINT):
            if link is None or number == signal.SIGTERM:
                signal.signal(number, lambda *_: stop())
        if link is None:
            ignore_signals_at_exit()
        else:
            node.watch(link.fileno(), select.EPOLLIN | select.EPOLLRDHUP, _Commands(node, link))
        say(link, event="listening")
        on_listening()
        manager.notify("READY=1")
        if (watchdog := manager.watchdog()) is not None:
            node.watch(watchdog.fd, select.EPOLLIN, watchdog)
        gc.freeze()
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        node.run()
    except ClusterError as error:
        if link is None:
            raise
        say(link, event="failed", error=str(error))
        return error.exit_status
    return RESTART_STATUS if node.is_restart_asked else 0


def run_again(config: NodeConfig, link: socket.socket) -> NoReturn:
    """Run the member, by its node.toml, in a new interpreter that loads the code on the disk now."""
    signals.pass_over()
    os.set_inheritable(link.fileno(), True)
    arguments = [str(config.path / "node.toml"), str(link.fileno())]
    os.execv(sys.executable, [sys.executable, "-m", "cluster.node.process", *arguments])


def run_by_file(path: str, descriptor: int) -> int:
    """The new interpreter of ``run_again``; returns the exit status."""
    link = socket.socket(fileno=descriptor)
    link.set_inheritable(False)
    link.setblocking(False)
    ignore_signals_at_exit()
    try:
        config = _read_file(path)
        name_process(config.member_id)
        warm_up(config)
    except ClusterError as error:
        say(link, event="failed", error=str(error))
        return error.exit_status
    return run(config, link)


def _read_file(path: str | os.PathLike[str]) -> NodeConfig:
    """A file of a supervisor's member, which wins over the environment."""
    return config_text.load(overrides=config_text.values_in(path))


def _report_service_error(link: socket.socket, error: ServiceError, count: int) -> None:
    say(link, event="service-error", **service_error_fields(error, count))


class _Commands:
    """What the supervisor asks for, line by line; its end of file ends the member too."""

    def __init__(self, node: ClusterNode, link: socket.socket) -> None:
        self._node = node
        self._link = link
        self._received = b""

    def on_ready(self, events: int) -> None:
        try:
            data = self._link.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._node.unwatch(self._link.fileno())
            self._node.stop()
            return
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            match json.loads(line):
                case {"command": "terminate"}:
                    if not self._node.terminate_cluster():
                        self._node.stop()
                case {"command": "stop"}:
                    self._node.stop()


if __name__ == "__main__":
    sys.exit(run_by_file(sys.argv[1], int(sys.argv[2])))
