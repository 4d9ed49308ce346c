"""A service in a process of its own writes its snapshot in a copy of that process, and goes on meanwhile."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import ClusterNode, ServiceError
from cluster.archive.snapshot_archive import SnapshotImage
from cluster.protocol.enums import ClusterAction
from cluster.service.container_snapshot import read_container_section
from tests.node.counting_service import Client, Counting, events, kill, pid_of
from tests.node.processes import await_that, is_alive, keys_of, tool
from tests.node.service_in_memory import Module, Numbering, led


class Copied(Numbering):
    """Says in its snapshot which process wrote it, and does not before its gate is open."""

    forks_for_snapshots = True
    gate = ""

    def on_take_snapshot(self, snapshot_publication: Any) -> None:
        while self.gate and not os.path.exists(self.gate):
            time.sleep(0.001)
        snapshot_publication.offer(b"%d" % self.number)
        snapshot_publication.offer(b"%d" % os.getpid())


class Dying(Copied):
    def on_take_snapshot(self, snapshot_publication: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class Raising(Copied):
    def on_take_snapshot(self, snapshot_publication: Any) -> None:
        snapshot_publication.offer(b"half")
        raise ValueError("no good")


@pytest.fixture
def a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[type[Copied]], Module]]:
    made: list[Module] = []
    monkeypatch.setattr(threading, "active_count", lambda: 1)  # those of the tests' runner do no harm
    monkeypatch.setattr(Copied, "gate", str(tmp_path / "gate"))

    def make(service: type[Copied]) -> Module:
        (tmp_path / "archive").mkdir()
        made.append(Module(str(tmp_path / "archive"), f"{__name__}:{service.__name__}"))
        return led(made[-1])

    yield make
    for module in made:
        assert module.process.host is not None
        module.process.host.end(None)
        module.close()


def take(module: Module) -> int:
    """Have the log ask for a snapshot, and the service do what it does at once."""
    module.log.action(ClusterAction.SNAPSHOT)
    position = module.channel.awaited_snapshot = module.commit()
    module.settle()
    return position


def open_gate() -> None:
    Path(Copied.gate).touch()


def await_written(module: Module, count: int = 1) -> None:
    await_that(lambda: module.turn() >= 0 and len(module.written) == count, "what became of the snapshot")


def records_of(module: Module, recording_id: int) -> list[bytes]:
    image = SnapshotImage(module.archive.recording(recording_id))
    read_container_section(image, 0)
    return list(image)


def test_the_service_goes_on_while_a_copy_of_it_writes_what_it_was(a_module):
    module = a_module(Copied)
    module.log.message(7, b"before")
    position = take(module)
    assert (module.acks[-1].log_position, module.acks[-1].relevant_id) == (position, 1)
    module.log.message(7, b"after")
    module.commit()
    module.settle()
    assert module.answers[-1] == (7, b"2 again")
    assert module.written == [], "its copy waits"

    open_gate()
    await_written(module)
    [written] = module.written
    assert (written.log_position, written.recording_id, written.why) == (position, 1, b"")
    number, pid = records_of(module, 1)
    assert number == b"1", "of its position, although the service was past it"
    assert int(pid) != os.getpid()
    recording = module.archive.recording(1)
    assert (recording.append_position, recording.descriptor.stop_position) == (written.length,) * 2
    assert module.archive.find_damage(1) is None
    assert module.remote._ports.snapshots.checksum(1) == written.checksum
    assert not (Path(module.archive.directory) / "recording-1.proof").exists()


@pytest.mark.parametrize(("service", "why"), [(Dying, b"ended by signal 9"), (Raising, b"no good")])
def test_a_copy_that_fails_is_told_and_costs_nothing_but_the_snapshot(a_module, service, why):
    module = a_module(service)
    take(module)
    await_written(module)
    [written] = module.written
    assert why in written.why
    assert [descriptor.recording_id for descriptor in module.archive.recordings()] == [0]
    module.log.message(7, b"after")
    module.commit()
    module.settle()
    assert module.answers[-1] == (7, b"1 again")
    assert module.process.starts == 1
    if service is Raising:
        [error] = module.errors
        assert isinstance(error, ServiceError)
        assert (error.callback, error.log_position) == ("on_take_snapshot", written.log_position)
        assert f"({__file__}:" in str(error)


def test_a_process_that_cannot_be_copied_has_no_snapshot(a_module, monkeypatch):
    def fork() -> int:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(os, "fork", fork)
    module = a_module(Copied)
    descriptors = len(os.listdir("/proc/self/fd"))
    take(module)
    await_written(module)
    assert module.written[0].why == b"its process cannot be copied: Cannot allocate memory"
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_the_next_snapshot_waits_for_the_copy_of_the_one_before(a_module):
    module = a_module(Copied)
    take(module)
    module.log.message(7, b"between")
    module.log.action(ClusterAction.SNAPSHOT)
    module.channel.awaited_snapshot = module.commit()
    acks = len(module.acks)
    opening = threading.Timer(0.2, open_gate)
    opening.start()
    await_written(module, 2)
    opening.join()
    assert len(module.acks) == acks + 1
    assert [records_of(module, id_)[0] for _, id_ in module.snapshots] == [b"0", b"1"]


def test_a_process_that_is_lost_while_its_copy_writes_has_no_snapshot(a_module):
    module = a_module(Copied)
    take(module)
    host = module.process.host
    module.process.kill(module.remote)
    host.end(None)
    await_written(module)
    assert module.written[0].why == b"the process of the service has ended"
    assert [descriptor.recording_id for descriptor in module.archive.recordings()] == [0]
    module.log.message(7, b"after")
    module.commit()
    module.settle()
    assert module.answers[-1] == (7, b"1 again")
    assert len(module.written) == 1, "the next process does not take it again"


def test_a_service_with_threads_is_not_copied_and_says_so_once(a_module, monkeypatch, capsys):
    module = a_module(Copied)
    open_gate()
    monkeypatch.setattr(threading, "active_count", lambda: 3)
    for count in (1, 2):
        take(module)
        await_written(module, count)
    assert [int(records_of(module, id_)[1]) for _, id_ in module.snapshots] == [os.getpid()] * 2
    assert capsys.readouterr().out.count("service 0 has 3 threads, so its process is not copied") == 1


class Lasting(Counting):
    """Takes long to write its snapshot."""

    def on_take_snapshot(self, snapshot_publication: Any) -> None:
        super().on_take_snapshot(snapshot_publication)
        time.sleep(60)


@pytest.mark.slow
def test_a_member_answers_while_a_copy_of_its_service_writes_which_dies_with_its_service(tmp_path):
    with ClusterNode.launch(**keys_of(tmp_path, services=[f"{__name__}:Lasting"])) as node:
        await_that(lambda: node.is_leader, "a leader")
        client = Client(f"0=ipc:{node.config.ipc_path}")
        client.send(b"a")
        client.await_answers(1)
        pid = pid_of(node.config.path)
        children = Path(f"/proc/{pid}/task/{pid}/children")
        asking = threading.Thread(target=tool, args=(node, "snapshot"))
        asking.start()
        [copy] = await_that(lambda: children.read_text().split(), "its copy")
        client.send(b"b")
        assert client.await_answers(2) == [b"1 a", b"2 b"]
        kill(pid)
        asking.join()
        await_that(lambda: not is_alive(int(copy)), "the copy's end")
        client.send(b"c")
        assert client.await_answers(3)[-1] == b"3 c"
        assert any(
            line.startswith("no snapshot at") and line.endswith("the process of the service has ended")
            for line in events(node.config.path)
        )
        client.client.close()
