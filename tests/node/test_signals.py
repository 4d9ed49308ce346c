"""Signals that do not end a member."""

import json
import os
import resource
import signal

import pytest

from cluster.node.signals import pass_over
from cluster.node.supervisor import _SignalPipe
from tests.node.processes import Up, ask, await_that, run


def test_a_member_lives_on_after_each_and_says_what_it_did_and_so_does_its_supervisor(tmp_path):
    with Up(tmp_path / "c", members=1) as up:
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD):
            up.signal(number)
        path, pid = up.member_dir(0) / "node.log", up.pid(0)
        os.kill(pid, signal.SIGUSR1)
        await_that(lambda: "log level debug" in path.read_text(), "a line about SIGUSR1")

        def is_message_written() -> bool:
            return bool(ask(up.tcp, 1)) and "SessionMessageHeader leadershipTermId=0" in path.read_text()

        await_that(is_message_written, "a client's message, which compiled turns take while it is off")
        os.kill(pid, signal.SIGUSR1)
        await_that(lambda: "log level info" in path.read_text(), "a line about the second SIGUSR1")
        os.kill(pid, signal.SIGUSR2)
        await_that(lambda: '"stacks": {' in path.read_text(), "the stacks")
        (told,) = [line for line in map(json.loads, path.read_text().splitlines()) if "stacks" in line]
        assert any("in run" in call for calls in told["stacks"].values() for call in calls)

        for name in ("node.log", "audit.log"):
            (up.member_dir(0) / name).rename(up.member_dir(0) / f"{name}.moved")
        os.kill(pid, signal.SIGHUP)
        await_that(lambda: path.exists() and "opened again" in path.read_text(), "a new node.log")
        await_that((up.member_dir(0) / "audit.log").exists, "a new audit.log")
        assert run("tool", "pid", "--dir", str(up.member_dir(0))).stdout.strip() == str(pid)
        up.signal(signal.SIGHUP)  # its terminal is closed
        up.signal(signal.SIGTERM)
        up.signal(signal.SIGTERM)
        assert up.end() == (0, "", "")
        assert '"in_order": true' in path.read_text()


@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGSEGV, signal.SIGABRT])
def test_what_ends_a_member_at_once_leaves_the_stacks_of_its_threads(number):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.dup2(writing, 2)
        if signal.getsignal(number) is signal.SIG_IGN:  # as of SIGQUIT in a shell's background
            signal.signal(number, signal.SIG_DFL)
        pass_over()
        os.kill(os.getpid(), number)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        assert "most recent call first" in told.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -number


@pytest.mark.parametrize(("given", "ends"), [(signal.SIG_DFL, True), (signal.SIG_IGN, False)])
def test_a_hangup_asks_a_supervisor_to_end_in_order_unless_nohup_has_it_passed_over(given, ends):
    before = {number: signal.getsignal(number) for number in range(1, 18) if number not in (9, 11)}
    try:
        signal.signal(signal.SIGHUP, given)
        pipe = _SignalPipe()
        signal.raise_signal(signal.SIGUSR1)
        assert not pipe.is_asked_to_stop
        signal.raise_signal(signal.SIGHUP)
        assert pipe.is_asked_to_stop is ends
    finally:
        signal.set_wakeup_fd(-1)
        for number, handler in before.items():
            signal.signal(number, handler)
        for fd in pipe.fds:
            os.close(fd)
