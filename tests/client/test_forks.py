"""Processes that are forked off one with an open client or reader: the parent's session does not notice."""

from __future__ import annotations

import gc
import os
import time
import traceback

import pytest

from cluster.client import ClusterClient
from cluster.errors import ClientClosed, ConfigurationError
from cluster.reader import LogReader
from cluster.reader.served_member import ServedMember
from cluster.transport.endpoint import Endpoint, Medium
from cluster.transport.grpc_gateway import GrpcGateway
from tests.archive.logs import a_log
from tests.archive.members import write_member

DEADLINE_S = 20
FOLDERS = {"cluster": "cluster", "archive": "archive", "aeron": "driver"}


def in_a_fork(action):
    """What a forked process says that runs ``action``; it ends as a program does that forked by itself."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.write(writing, str(action()).encode())
            gc.collect()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as said:
        text = said.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return text


def told_by(*calls):
    """What each of the calls raises."""
    told = []
    for call in calls:
        try:
            told.append(f"no error: {call()}")
        except ClientClosed as error:
            told.append(str(error).splitlines()[0].partition(" is closed: ")[2])
    return told


@pytest.mark.parametrize("medium", ["ipc", "tcp", "grpc"])
def test_a_session_goes_on_in_its_process_and_its_copy_in_a_fork_says_what_it_is(leader, medium):
    with ClusterClient.connect(leader.endpoints[medium]) as client:
        assert client.offer(b"before") > 0
        client.await_committed(DEADLINE_S)

        def use_the_copy():
            with client:
                told = told_by(
                    lambda: client.offer(b"child"),
                    lambda: client.offer_batch([b"child"]),
                    client.poll_egress,
                    lambda: client.wait(1),
                )
            return "\n".join(told)

        def open_another():
            try:
                with ClusterClient.connect(leader.endpoints[medium]) as another:
                    return another.offer(b"child") > 0
            except ConfigurationError as error:
                return error

        why = f"process {os.getpid()} opened it, and this one was forked off: open another one here"
        assert in_a_fork(use_the_copy).splitlines() == [why] * 4
        refused = f"process {os.getpid()} was at work with gRPC when this one was forked off"
        assert in_a_fork(open_another).startswith(refused if medium == "grpc" else "True")
        assert client.offer(b"after") > 0
        client.await_committed(DEADLINE_S)
        assert leader.closed == []
    assert leader.log == [b"before", b"after"]
    deadline = time.monotonic() + DEADLINE_S
    while leader.closed != [41]:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_reader_goes_on_in_its_process_and_its_copy_in_a_fork_says_what_it_is(tmp_path):
    write_member(tmp_path, a_log(3))

    def open_log():
        directories = {f"{name}_dir": f"{tmp_path}/{folder}" for name, folder in FOLDERS.items()}
        return ServedMember(**directories, cluster_id=0, member_id=0)

    listen = Endpoint(Medium.GRPC, "127.0.0.1", 0)
    gateway = GrpcGateway(listen, lambda *_: None, open_log, 1 << 20)
    try:
        with LogReader.open(endpoints=f"0={gateway.start()}") as reader:
            end = reader.commit_position()

            def use_the_copy():
                with reader:
                    told = told_by(reader.commit_position, lambda: next(reader.batches(to_position=end)))
                return "\n".join(told)

            why = f"process {os.getpid()} opened it, and this one was forked off: open another one here"
            assert in_a_fork(use_the_copy).splitlines() == [why] * 2
            assert reader.commit_position() == end
            assert sum(len(batch) for batch in reader.batches(to_position=end)) > 0
    finally:
        gateway.stop()
