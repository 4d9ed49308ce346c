"""A cluster of real processes on this machine: started, used, broken, stopped, started again."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import tarfile
from contextlib import suppress

import pytest

from cluster import ClusterClient
from tests.node.processes import (
    COMMAND,
    DEADLINE_S,
    Process,
    Up,
    await_that,
    dump,
    environment,
    free_base_port,
    is_alive,
    run,
)


def one_line(text: str) -> str:
    assert text.count("\n") == 1, text
    assert "Traceback" not in text
    return text


def test_three_members_take_messages_over_every_medium_and_start_again_over_their_directories(tmp_path):
    with Up(tmp_path / "c", is_new=True) as up:
        assert set(up.described) == {"endpoints", "tcpEndpoints", "ipcEndpoints", "leaderMemberId", "members"}
        assert [set(member) for member in up.described["members"]] == [
            {"memberId", "pid", "dir", "endpoints"}
        ] * 3
        assert up.endpoints == ",".join(f"{i}=127.0.0.1:{up.base_port + 10 * i}" for i in range(3))
        assert len({up.pid(i) for i in range(3)}) == 3
        for endpoints in (up.endpoints, up.tcp, up.ipc):
            sent = run("send", "--endpoints", endpoints, "--linger", "200", text="a\nb\n", is_new=True)
            assert (sent.returncode, sent.stdout) == (0, "a\nb\n"), sent.stderr
        top = up.top()
        assert sorted(member["role"] for member in top) == ["FOLLOWER", "FOLLOWER", "LEADER"]
        assert {member["electionState"] for member in top} == {"CLOSED"}
        asked = json.loads(run("top", "--endpoints", up.endpoints, "--once", "--json").stdout)["members"]
        assert [member["role"] for member in asked] == [member["role"] for member in top]
        table = run("top", "--dir", str(up.member_dir(up.leader)), "--once", "--counters").stdout
        assert "LEADER" in table and "Cluster commit-pos" in table
        for where in (("--dir", str(up.member_dir(1))), ("--endpoints", up.endpoints.split(",")[2])):
            status = run("status", *where, "--wait", "healthy", "--timeout", "20", "--json")
            found = json.loads(status.stdout)
            assert (status.returncode, found["cluster"]["memberCount"]) == (0, 3), status.stdout
            assert found["mayFail"] == {"withoutStopping": 1, "withoutLoss": 2}
        events = run("events", "--dir", str(up.directory)).stdout.splitlines()
        assert [line for line in events if "role CANDIDATE -> LEADER" in line]
        assert events == sorted(events, key=lambda line: line.partition(" ")[0])
        bundled = run("bundle", "--dir", str(up.directory), "--json", "--out", str(tmp_path / "all.tar.gz"))
        assert json.loads(bundled.stdout)["files"] > 30, bundled.stderr
        with tarfile.open(tmp_path / "all.tar.gz") as bundle:
            logs = [bundle.extractfile(f) for f in bundle if f.name.endswith("/node.log")]
            assert ['"stacks"' in log.read().decode() for log in logs if log] == [True] * 3
        assert up.stop() == (0, "", "")
        assert not any(is_alive(up.pid(i)) for i in range(3))

    logs = [dump(up.directory / f"member-{i}") for i in range(3)]
    assert logs[0] == logs[1] == logs[2]
    assert [entry.get("payload") for entry in logs[0] if entry["entryType"] == "SESSION_MESSAGE"] == [
        "a",
        "b",
    ] * 3

    with Up(up.directory, base_port=up.base_port) as again:
        sent = run("send", "--endpoints", again.tcp, "--linger", "200", text="c\n")
        assert (sent.returncode, sent.stdout) == (0, "c\n")
        assert again.stop() == (0, "", "")
    longer = dump(up.directory / "member-1")
    assert longer[: len(logs[0])] == logs[0]
    assert [entry["entryType"] for entry in longer].count("NEW_LEADERSHIP_TERM") == 2


def test_members_that_start_late_follow_a_log_with_checksums_small_terms_and_a_nanosecond_clock(tmp_path):
    settings = {
        "CLUSTER_ARCHIVE_RECORD_CHECKSUM": "crc32c",
        "CLUSTER_LOG_TERM_LENGTH": "64k",
        "CLUSTER_ARCHIVE_SEGMENT_FILE_LENGTH": "64k",
        "CLUSTER_CLUSTER_CLOCK": "ns",
        "CLUSTER_FILE_SYNC_LEVEL": "2",
    }
    text = "".join(f"{i:>500}\n" for i in range(400))  # three terms of the log
    with Up(tmp_path / "c", **settings) as up:
        late = (up.leader + 1) % 3
        os.kill(up.pid(late), signal.SIGKILL)
        sent = run("send", "--endpoints", up.tcp, "--linger", "200", text=text)
        assert (sent.returncode, sent.stdout) == (0, text), sent.stderr
        up.stop()
    with Up(up.directory, base_port=up.base_port, **settings) as up:
        await_that(
            lambda: len({member["commitPosition"] for member in up.top()}) == 1, "all at the same position"
        )
        assert [member["errors"] for member in up.top()] == [0, 0, 0]
        assert up.stop() == (0, "", "")
    logs = [dump(up.directory / f"member-{i}") for i in range(3)]
    assert logs[0] == logs[1] == logs[2]
    assert [entry["payload"] + "\n" for entry in logs[0] if "payload" in entry] == text.splitlines(True)
    verified = run("archive", "verify", "--dir", str(up.directory / f"member-{late}"))
    assert verified.returncode == 0, verified.stdout


@pytest.mark.slow
@pytest.mark.parametrize("command", ["up", "node"])
def test_however_often_it_is_interrupted_it_ends_in_order(tmp_path, command):
    port = free_base_port()
    if command == "up":
        arguments = ["--members", "1", "--dir", str(tmp_path), "--base-port", str(port)]
    else:
        rest = ",".join([f"127.0.0.1:{port + 2}"] * 4)
        config = tmp_path / "node.toml"
        config.write_text(f'members = "0,127.0.0.1:{port},{rest}"\ndir = "{tmp_path}/member-0"\n')
        arguments = ["--config", str(config)]
    with Process(command, *arguments, is_new=True) as process:
        while process.process.poll() is None:
            process.signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.process.wait(0.005)
        status, _, errors = process.end()
        assert (status, errors) == (0, "")


@pytest.mark.faults
def test_a_client_follows_when_its_leader_is_killed_and_each_message_is_in_the_log_once(tmp_path):
    count = 3_000
    with Up(tmp_path / "c") as up:
        answers = []
        with ClusterClient.connect(
            up.tcp, lambda session_id, time, payload: answers.append(bytes(payload))
        ) as client:
            killed = client.leader_member_id
            for i in range(count):
                if i == count // 3:
                    os.kill(up.pid(killed), signal.SIGKILL)
                while client.offer(b"%d" % i) < 0:
                    client.poll_egress()
                client.poll_egress()
            client.await_committed(30)
            assert client.leader_member_id != killed
            session_id = client.cluster_session_id

        status, out, err = up.stop()
        assert (status, out) == (0, "")
        assert one_line(err) == (
            f"member {killed} (pid {up.pid(killed)}) was ended by signal 9; 2 of 3 members go on; "
            f"to start it again: cluster node --config {up.directory / f'member-{killed}' / 'node.toml'}\n"
        )
    survivors = [dump(up.directory / f"member-{i}") for i in range(3) if i != killed]
    assert survivors[0] == survivors[1]
    sent = [
        entry["payload"]
        for entry in survivors[0]
        if entry.get("payload") and entry["clusterSessionId"] == session_id
    ]
    assert sent == [str(i) for i in range(count)]
    assert {int(answer) for answer in answers} <= set(range(count))

    # The one that was killed comes back with what it had, and is brought level.
    with Up(up.directory, base_port=up.base_port) as again:
        await_that(
            lambda: len({member["commitPosition"] for member in again.top()}) == 1, "all at the same position"
        )
        assert again.stop()[0] == 0
    assert dump(up.directory / f"member-{killed}") == dump(up.directory / f"member-{(killed + 1) % 3}")


def has_messages(up: Up) -> bool:
    entries = dump(up.directory / f"member-{up.leader}")
    return any(entry["entryType"] == "SESSION_MESSAGE" for entry in entries)


@pytest.mark.faults
def test_send_goes_on_when_the_leader_dies_and_says_that_answers_may_be_missing(tmp_path):
    with Up(tmp_path / "c") as up:
        send = subprocess.Popen(
            [*COMMAND, "send", "--endpoints", up.endpoints],
            **dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE),
            text=True,
            env=environment(),
        )
        assert send.stdin is not None
        for number in range(3000):
            if number == 1000:
                await_that(lambda: has_messages(up), "some are in the log")
                os.kill(up.pid(up.leader), signal.SIGKILL)
            send.stdin.write(f"{number}\n")
            send.stdin.flush()
        out, err = send.communicate(timeout=DEADLINE_S)
        assert send.returncode == 0
        assert "the leader changed: answers that were on their way then may be missing" in one_line(err)
        answers = [int(line) for line in out.splitlines()]
        assert answers == sorted(set(answers)), "none twice, in the order sent"
        survivor = up.directory / f"member-{(up.leader + 1) % 3}"
        sent = [e["payload"] for e in dump(survivor) if e["entryType"] == "SESSION_MESSAGE"]
        assert sent == [str(number) for number in range(3000)]


@pytest.mark.faults
def test_a_member_that_died_is_started_again_by_its_own_file(tmp_path):
    with Up(tmp_path / "c") as up:
        follower = (up.leader + 1) % 3
        os.kill(up.pid(follower), signal.SIGKILL)
        sent = run("send", "--endpoints", up.tcp, "--linger", "100", text="while one is away\n")
        assert sent.returncode == 0
        with Process("node", "--config", str(up.member_dir(follower) / "node.toml"), "--json") as node:
            described = json.loads(node.first_line)
            assert described["memberId"] == follower
            assert described["endpoint"] == f"127.0.0.1:{up.base_port + 10 * follower}"
            await_that(
                lambda: (
                    len({m["commitPosition"] for m in up.top() if m["electionState"] == "CLOSED"}) == 1
                    and all(m["electionState"] == "CLOSED" for m in up.top())
                ),
                "the member has caught up",
            )
            assert node.stop() == (0, "", "")
        assert up.stop()[0] == 0
    assert dump(up.member_dir(follower))[:4] == dump(up.member_dir(up.leader))[:4]


@pytest.mark.faults
def test_members_end_with_their_parent(tmp_path):
    with Up(tmp_path / "c") as up:
        up.process.kill()
        await_that(lambda: not any(is_alive(up.pid(i)) for i in range(3)), "no member is left")
    with Up(up.directory, base_port=up.base_port) as again:
        assert again.stop() == (0, "", "")


@pytest.mark.faults
def test_when_no_member_is_left_the_command_ends_with_status_1(tmp_path):
    with Up(tmp_path / "c", members=1) as up:
        os.kill(up.pid(0), signal.SIGKILL)
        status, out, err = up.end()
    assert (status, out) == (1, "")
    assert "member 0" in one_line(err)


def test_a_port_in_use_is_named_and_nothing_is_left_running(tmp_path):
    port = free_base_port()
    for taken in (port + 10, port + 11, port + 12):
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", taken))
            other.listen()
            result = run("up", "--dir", str(tmp_path / "c"), "--base-port", str(port))
        assert (result.returncode, result.stdout) == (1, "")
        assert f"127.0.0.1:{taken}" in one_line(result.stderr)
        assert "in use" in result.stderr and "--base-port" in result.stderr
        assert not (tmp_path / "c").exists()
    with Up(tmp_path / "c", base_port=port) as up:
        assert up.stop()[0] == 0


def test_what_runs_is_said_with_a_command_that_works(tmp_path):
    port = free_base_port()
    with Process("up", "--members", "1", "--dir", "c", "--base-port", str(port), cwd=tmp_path) as up:
        assert up.process.stdout is not None
        lines = [up.first_line, *(up.process.stdout.readline() for _ in range(4))]
        assert "".join(lines) == (
            f"endpoints: 0=127.0.0.1:{port}\nleader: member 0\nservice: echo\n"
            "directory: c, with the events of each member in c/member-*/node.log, "
            "what services print in c/member-*/output.log\n"
            f"next: echo hello | cluster send --endpoints 127.0.0.1:{port}\n"
        )
        assert run("send", "--endpoints", f"127.0.0.1:{port}", text="hello\n").stdout == "hello\n"
        up.signal(signal.SIGINT)
        assert up.end() == (0, "", "")


def test_a_second_process_on_the_same_directory_is_refused(tmp_path):
    with Up(tmp_path / "c", members=1) as up:
        before = dump_of_running(up)
        for port in (up.base_port, free_base_port()):  # the same command again is not about ports
            other = run("up", "--members", "1", "--dir", str(up.directory), "--base-port", str(port))
            assert (other.returncode, other.stdout) == (1, "")
            assert f"in use by process {up.pid(0)}" in one_line(other.stderr)
        node = run("node", "--config", str(up.member_dir(0) / "node.toml"))
        assert node.returncode == 1
        assert f"in use by process {up.pid(0)}" in one_line(node.stderr)
        assert dump_of_running(up) == before
        assert up.stop() == (0, "", "")


@pytest.mark.parametrize(("order", "status"), [("shutdown", 0), ("kill", 1)])
def test_members_that_were_shut_down_have_not_failed(tmp_path, order, status):
    with Up(tmp_path / "c", members=1) as up:
        if order == "kill":
            os.kill(up.pid(0), signal.SIGKILL)
        else:
            assert run("tool", order, "--dir", str(up.directory)).returncode == 0
        ended, _, said = up.end()
        assert ended == status, said
        assert "0 of 1 members go on" in said


def test_a_cluster_that_is_refused_its_directory_changes_nothing_in_it(tmp_path):
    with Up(tmp_path / "c", members=1) as up:
        before = (up.member_dir(0) / "node.toml").read_text()
        other = run("up", "--members", "1", "--dir", str(up.directory), "--base-port", str(free_base_port()))
        assert other.returncode == 1
        assert (up.member_dir(0) / "node.toml").read_text() == before
        assert up.stop() == (0, "", "")


def test_a_directory_that_cannot_be_made_or_written_to_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    ports = "--base-port", str(free_base_port())
    made = run("up", "--members", "1", "--dir", str(tmp_path / "file"), *ports)
    assert (made.returncode, made.stdout) == (1, "")
    assert f"{tmp_path}/file/member-0: the directory cannot be made" in one_line(made.stderr)

    (tmp_path / "c" / "member-0" / "output.log").mkdir(parents=True)
    written = run("up", "--members", "1", "--dir", str(tmp_path / "c"), *ports)
    assert (written.returncode, written.stdout) == (1, "")
    assert f"{tmp_path}/c/member-0/output.log: cannot be opened: Is a directory" in one_line(written.stderr)


def dump_of_running(up: Up) -> str:
    return run("log", "dump", "--dir", str(up.member_dir(0)), "--json").stdout


def test_a_directory_of_a_bigger_cluster_is_refused(tmp_path):
    (tmp_path / "member-2").mkdir()
    result = run("up", "--members", "1", "--dir", str(tmp_path))
    assert (result.returncode, result.stdout) == (2, "")
    assert "member-2, so it is of a cluster of more than 1 members" in one_line(result.stderr)


def test_a_cluster_keeps_its_size(tmp_path):
    (tmp_path / "member-0").mkdir()
    (tmp_path / "member-0/node.toml").write_text('members = ["0,h:1,h:2,h:2,h:2,h:2"]\n')
    result = run("up", "--dir", str(tmp_path), "--base-port", str(free_base_port()))
    assert (result.returncode, result.stdout) == (2, "")
    assert "member-0/node.toml is of a cluster of 1, expected 3; a cluster keeps its size" in one_line(
        result.stderr
    )
    assert [path.name for path in tmp_path.iterdir()] == ["member-0"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["up", "--members", "2"], "--members: 2: expected 1, 3, 5 or 7"),
        (["up", "--base-port", "65530"], "--base-port: 65530: expected a port with room for all members"),
        (["up", "--service", "nowhere:Service"], 'service "nowhere:Service": no module nowhere'),
        (["up", "--service", "echo:"], 'service "echo:": expected "echo" or "module:ClassName"'),
        (["up", "--service", "json:Service"], 'service "json:Service": json has no Service'),
        (["node", "--config", "missing.toml"], "missing.toml: no such file"),
        (["node"], "give either --config or --check"),
        (["top", "--dir", ".", "--endpoints", "localhost:9000"], "give either --dir or --endpoints"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(tmp_path, arguments, expected):
    result = run(*arguments, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert expected in one_line(result.stderr)
    assert list(tmp_path.iterdir()) == []


def test_unknown_and_wrong_keys_are_refused_before_anything_is_made(tmp_path):
    config = tmp_path / "node.toml"
    config.write_text(f'dir = "{tmp_path}/m"\nmax_sesions = 3\nsession_timeout = "soon"\n')
    result = run("node", "--config", str(config))
    assert (result.returncode, result.stdout) == (2, "")
    assert 'unknown key "max_sesions"; did you mean max_sessions?' in one_line(result.stderr)
    assert 'session_timeout = "soon": expected a duration' in result.stderr
    assert not (tmp_path / "m").exists()


SERVICE = """
from cluster import ClusteredService

class Moody(ClusteredService):
    def on_start(self, cluster, snapshot_image):
        self.cluster = cluster

    def on_session_message(self, session, timestamp, buffer):
        if bytes(buffer) == b"fail":
            raise ValueError("I do not like it")
        self.cluster.schedule_timer(1, timestamp + 200)
        session.offer(b"got ", buffer)

    def on_timer_event(self, correlation_id, timestamp):
        for session in self.cluster.client_sessions():
            session.offer(b"timer %d" % correlation_id)

class Broken(ClusteredService):
    def on_start(self, cluster, snapshot_image):
        raise RuntimeError("no way")
"""


@pytest.mark.conformance("S-88", "S-111")
def test_a_service_is_found_in_the_working_directory_and_its_errors_are_seen_while_it_goes_on(tmp_path):
    (tmp_path / "moody.py").write_text(SERVICE)
    with Up(tmp_path / "c", "--service", "moody:Moody", members=1, cwd=tmp_path) as up:
        sent = run("send", "--endpoints", up.ipc, "--linger", "1000", text="one\nfail\ntwo\n")
        assert (sent.returncode, sent.stdout) == (1, "got one\ngot two\ntimer 1\n")
        told = re.fullmatch(
            "every message is committed, but service 0 raised ValueError in on_session_message at position "
            r"(\d+); see node\.log of member 0",
            one_line(sent.stderr).removeprefix("Error: ").strip(),
        )
        assert told is not None, sent.stderr
        again = run("send", "--endpoints", up.ipc, "--linger", "2000", text="fail\n" * 4)
        assert (again.returncode, again.stdout) == (1, "")
        assert "; and 3 more errors like it" in again.stderr
        unwaited = run("send", "--endpoints", up.ipc, "--no-wait", text="fine\n")
        assert (unwaited.returncode, unwaited.stderr) == (0, "")
        assert [member["errors"] for member in up.top()] == [5]
        status, out, err = up.stop()
    assert (status, out) == (0, "")
    lines = err.splitlines()
    moody = tmp_path / "moody.py"
    what = f"member 0: service 0 raised ValueError in on_session_message ({moody}:10): I do not like it"
    assert lines[0] == f"{what}; at position {told[1]} of the log"
    assert lines[1] == "Traceback (most recent call last):"
    assert f'  File "{moody}", line 10, in on_session_message' in lines
    member = up.member_dir(0)
    named = f"errors are in {member}/node.log, what services print is in {member}/output.log"
    assert [line for line in lines if line.startswith(("member", "errors"))][1] == named
    assert [line.rpartition(", ")[2] for line in lines[-2:]] == ["2 times so far", "4 times so far"]

    log = [json.loads(line) for line in (member / "node.log").read_text().splitlines()]
    raised = [line for line in log if line["level"] == "error"]
    assert raised[0]["event"].endswith("I do not like it")
    assert raised[0]["position"] == int(told[1])
    assert [line["count"] for line in raised] == [1, 2, 4]
    errors = run("tool", "errors", "--dir", str(member))
    assert "ValueError: I do not like it" in errors.stdout


@pytest.mark.slow
def test_each_member_tells_of_an_error_and_one_shows_where_it_came_from(tmp_path):
    (tmp_path / "moody.py").write_text(SERVICE)
    with Up(tmp_path / "c", "--service", "moody:Moody", members=3, cwd=tmp_path) as up:
        assert run("send", "--endpoints", up.ipc, text="fail\n").returncode == 1
        await_that(lambda: [member["errors"] for member in up.top()] == [1, 1, 1], "all have counted it")
        status, _, err = up.stop()
    assert status == 0
    told = [line for line in err.splitlines() if line.startswith("member ")]
    assert sorted(line[:9] for line in told) == ["member 0:", "member 1:", "member 2:"]
    assert len({line[9:] for line in told}) == 1
    assert err.count("Traceback") == 1


def test_a_service_that_raises_ends_its_member_where_the_configuration_says_so(tmp_path):
    (tmp_path / "moody.py").write_text(SERVICE)
    with Up(
        tmp_path / "c",
        "--service",
        "moody:Moody",
        members=1,
        cwd=tmp_path,
        CLUSTER_SERVICE_ERROR_POLICY="stop",
    ) as up:
        run("send", "--endpoints", up.ipc, "--timeout", "1", text="fail\n")
        status, _, err = up.end()
    assert status == 1
    assert "I do not like it; service_error_policy is stop" in err
    log = (up.member_dir(0) / "node.log").read_text()
    assert "service_error_policy is stop" in log


@pytest.mark.slow
def test_a_member_that_runs_alone_prints_what_its_service_raises(tmp_path):
    (tmp_path / "moody.py").write_text(SERVICE)
    with Up(tmp_path / "c", "--service", "moody:Moody", members=1, cwd=tmp_path) as up:
        up.stop()
    config = str(up.member_dir(0) / "node.toml")
    with Process("node", "--config", config, cwd=tmp_path) as node:
        assert run("send", "--endpoints", up.ipc, text="fail\n").returncode == 1
        status, _, err = node.stop()
    assert status == 0
    assert err.startswith("member 0: service 0 raised ValueError in on_session_message (")
    assert err.count("Traceback") == 1


@pytest.mark.conformance("S-100")
def test_a_service_that_cannot_start_ends_its_member_with_one_line(tmp_path):
    (tmp_path / "moody.py").write_text(SERVICE)
    result = run(
        "up", "--members", "1", "--dir", str(tmp_path / "c"), "--service", "moody:Broken",
        "--base-port", str(free_base_port()), cwd=tmp_path,
    )  # fmt: skip
    assert (result.returncode, result.stdout) == (1, "")
    assert (
        f"member 0: service 0 failed to start: no way (RuntimeError at {tmp_path / 'moody.py'}:20)"
        in one_line(result.stderr)
    )
