"""``cluster restart``: every process is another one then, and no session, message or timer is lost."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from cluster import ClusterClient
from tests.node.processes import DEADLINE_S, Up, await_that, is_alive, run

SERVICE = """
from cluster import ClusteredService


class Alarms(ClusteredService):
    # A timer for each message; "count" answers how many messages and timers there were.
    def on_start(self, cluster, snapshot_image):
        self.cluster, self.messages, self.fired = cluster, 0, 0

    def on_session_message(self, session, timestamp, buffer):
        if bytes(buffer) == b"count":
            session.offer(b"%d %d" % (self.messages, self.fired))
            return
        self.messages += 1
        while not self.cluster.schedule_timer(self.messages, timestamp + 300):
            self.cluster.idle()

    def on_timer_event(self, correlation_id, timestamp):
        self.fired += 1
"""


def last_events(up: Up) -> str:
    """What each member has said of itself at last, for whoever looks at a failure."""
    logs = [up.member_dir(member_id) / "node.log" for member_id in range(3)]
    return "\n".join("\n".join([str(log), *log.read_text().splitlines()[-40:]]) for log in logs)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_rolling_restart_ends_no_session_and_loses_nothing(tmp_path):
    (tmp_path / "alarms.py").write_text(SERVICE)
    options = ("--service", "alarms:Alarms", "--set", "service_mode=inline")
    with Up(tmp_path / "c", *options, cwd=tmp_path) as up:
        answers: list[bytes] = []
        is_over = threading.Event()
        with (
            ClusterClient.connect(up.endpoints) as silent,
            ClusterClient.connect(
                up.endpoints, lambda _, __, payload: answers.append(bytes(payload))
            ) as client,
        ):
            sessions = [silent.cluster_session_id, client.cluster_session_id]
            sent = [0]

            def load():
                while not is_over.wait(0.005):
                    sent[0] += client.offer(b"x") > 0
                    client.poll_egress()
                    silent.poll_egress()

            loading = threading.Thread(target=load)
            loading.start()
            try:
                restarted = run("restart", "--dir", str(up.directory), timeout_s=3 * DEADLINE_S)
            finally:
                is_over.set()
                loading.join()
            assert restarted.returncode == 0, f"{restarted.stdout}{restarted.stderr}{last_events(up)}"
            lines = restarted.stdout.splitlines()
            assert sorted(lines) == [f"member {i} restarted" for i in range(3)]
            assert lines[-1] == f"member {up.leader} restarted", "the leader comes last"
            client.await_committed()
            assert [silent.cluster_session_id, client.cluster_session_id] == sessions
            assert not silent.is_closed and not client.is_closed and sent[0] > 50

            def all_fired():
                while client.offer(b"count") < 0:
                    client.poll_egress()
                await_that(lambda: client.poll_egress() or answers, "an answer")
                return answers.pop() == b"%d %d" % (sent[0], sent[0])

            await_that(all_fired, f"{sent[0]} messages and timers")
        pids = [int(run("tool", "pid", "--dir", str(up.member_dir(i))).stdout) for i in range(3)]
        assert all(pid != up.pid(i) for i, pid in enumerate(pids))
        assert up.stop() == (0, "", ""), "up has started them, and ends them"


@pytest.mark.parametrize("mode", ["inline", pytest.param("process", marks=pytest.mark.slow)])
def test_a_restart_loads_the_code_and_the_keys_that_are_on_the_disk_then(tmp_path, mode):
    def write_service(answer):
        (tmp_path / "says.py").write_text(
            "from cluster import ClusteredService\n\n\n"
            "class Says(ClusteredService):\n"
            "    def on_session_message(self, session, timestamp, buffer):\n"
            f"        session.offer({answer!r})\n"
        )

    def answered():
        with ClusterClient.connect(up.endpoints) as client:
            client.offer(b"?")
            return next(client.answers(DEADLINE_S)).payload

    write_service(b"before")
    options = ("--service", "says:Says", "--set", f"service_mode={mode}", "--set", "max_sessions=7")
    with Up(tmp_path / "c", *options, members=1, cwd=tmp_path, CLUSTER_MAX_SESSIONS="9") as up:
        assert answered() == b"before"
        write_service(b"after")
        toml = up.member_dir(0) / "node.toml"
        toml.write_text(toml.read_text() + 'snapshot_every = "1s"\n')
        restarted = run("restart", "--dir", str(up.directory))
        assert restarted.returncode == 0, restarted.stderr
        assert answered() == b"after"
        pid = int(run("tool", "pid", "--dir", str(up.member_dir(0))).stdout)
        assert pid != up.pid(0)
        assert Path(f"/proc/{pid}/comm").read_text() == "cluster-0\n"
        await_that(lambda: "snapshot at " in (up.member_dir(0) / "node.log").read_text(), "the new key works")
        assert up.stop() == (0, "", "")


@pytest.mark.slow
def test_what_is_down_is_named_before_anything_is_restarted(tmp_path):
    with Up(tmp_path / "c", members=1) as up:
        own = run("restart", "--dir", str(up.member_dir(0)))
        assert (own.returncode, own.stdout) == (0, "member 0 restarted\n"), own.stderr
        alone = run("restart", "--dir", str(up.directory), "--json")
        assert (alone.returncode, alone.stdout) == (0, '{"memberId": 0, "outcome": "restarted"}\n'), (
            alone.stderr
        )
        assert up.stop()[0] == 0
    refused = run("restart", "--dir", str(up.directory))
    assert refused.returncode == 1
    assert refused.stderr == f"{up.member_dir(0)}: not running; start what is down first\n"


@pytest.mark.faults
@pytest.mark.timeout(300)
def test_the_member_of_a_host_hands_over_and_restarts_where_all_others_follow(tmp_path):
    with Up(tmp_path / "c") as up, ClusterClient.connect(up.endpoints) as client:
        leader = up.leader
        done = run("restart", "--dir", str(up.member_dir(leader)), timeout_s=3 * DEADLINE_S)
        assert (done.returncode, done.stdout) == (0, f"member {leader} restarted\n"), done.stderr
        client.offer(b"after it")
        client.await_committed(DEADLINE_S)
        assert client.leader_member_id != leader and not client.is_closed
        dead, other = (leader + 1) % 3, (leader + 2) % 3
        os.kill(up.pid(dead), signal.SIGKILL)
        refused = run("restart", "--dir", str(up.member_dir(other)))
        assert refused.returncode == 1 and "nothing is restarted" in refused.stderr
        assert is_alive(up.pid(other))


def test_up_gives_all_members_the_keys_that_are_set(tmp_path):
    options = ("--set", "max_sessions=7", "--set", "snapshot_every=60s")
    with Up(tmp_path / "c", *options, members=1) as up:
        text = (up.member_dir(0) / "node.toml").read_text()
        assert 'max_sessions = "7"' in text and 'snapshot_every = "60s"' in text
    for wrong in ("max_sessions", "no_such_key=1", "dir=elsewhere"):
        refused = run("up", "--dir", str(tmp_path / "d"), "--set", wrong)
        assert refused.returncode == 2 and wrong in refused.stderr and "expected KEY=VALUE" in refused.stderr
    refused = run("up", "--dir", str(tmp_path / "d"), "--set", "max_sessions=many")
    assert refused.returncode == 2 and 'max_sessions = "many"' in refused.stderr
