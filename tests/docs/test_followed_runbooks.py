"""docs/runbooks.md at real processes: its commands, as the page has them, show a fault and end it."""

from __future__ import annotations

import json
import os
import shutil
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from cluster import ClusterClient
from cluster.protocol.consumer import Consumer
from tests.docs.runbooks import PAGE, SECTIONS, SPAN, seen
from tests.node.processes import Process, Up, await_that, free_base_port, run

LOOK, STORY, BUNDLE = "cluster status", "cluster events --since 30m --level warning", "cluster bundle"
START, LEVEL = "cluster node --config FILE", "cluster status --wait level"
ACCEPT, HAND_OVER = "cluster tool accept-data-loss --dir DIR", "cluster tool transfer-leadership"
SNAPSHOT, GROUPS, ERRORS = "cluster snapshot", "cluster tool consumers", "cluster tool errors"
RENEW = "cluster certs renew --dir certs"
STACKS = "kill -USR2"
FOLLOWED = {
    LOOK, STORY, BUNDLE, START, LEVEL, ACCEPT, HAND_OVER, SNAPSHOT, GROUPS, ERRORS, RENEW, STACKS,
}  # fmt: skip
QUICK = ("leader_heartbeat_timeout=2s", "session_timeout=2s", "startup_canvass_timeout=4s")


def words(title: str, command: str, **places: str) -> list[str]:
    """Of a command that a runbook has, or the page before them; with what stands for its capitals."""
    assert command in SPAN.findall(SECTIONS.get(title, PAGE)), f"{title} has no `{command}`"
    return [places.get(word, word) for word in command.split()[1:]]


class Operator:
    """Somebody at a host who follows the page."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def does(self, title: str, command: str, *more: str, **places: str) -> str:
        done = run(
            *words(title, command, **places), *more, cwd=self.directory.parent,
            CLUSTER_DIR=str(self.directory),
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def is_shown(self, title: str) -> bool:
        """Whether the status has a name that the runbook says is seen."""
        shown = json.loads(run(*words("", LOOK), "--dir", str(self.directory), "--json").stdout)
        return bool({message["name"] for message in shown["messages"]} & set(seen(title)[1]))

    def awaits(self, title: str) -> None:
        await_that(lambda: self.is_shown(title), f"{title}: what is seen")

    def awaits_end(self, title: str) -> None:
        await_that(lambda: not self.is_shown(title), f"the end of: {title}")


def test_each_command_of_a_runbook_is_followed_below():
    told = {span for text in SECTIONS.values() for span in SPAN.findall(text.partition("**Do:**")[2])}
    before = set(SPAN.findall(PAGE.partition("\n## ")[0]))
    assert {span for span in told | before if span.startswith(("cluster ", "kill "))} == FOLLOWED


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_members_that_were_lost_come_back(tmp_path):
    at = Operator(tmp_path / "cluster-data")
    with ExitStack() as opened:
        up = opened.enter_context(Up(at.directory, *(f"--set={key}" for key in QUICK)))
        processes, files = {}, {}
        for member in range(3):
            files[member] = str(shutil.copy(up.member_dir(member) / "node.toml", tmp_path / f"{member}.toml"))

        def lose(member, *, with_disk=False):
            if member in processes:
                processes[member].process.kill()
                processes[member].process.wait()
            else:
                os.kill(up.pid(member), signal.SIGKILL)
            if with_disk:
                shutil.rmtree(up.member_dir(member))

        def start(member, title="A member is lost"):
            process = Process(*words(title, START, FILE=files[member]))
            processes[member] = opened.enter_context(process)

        follower, other = (member for member in range(3) if member != up.leader)
        ClusterClient.connect(up.tcp, consumer=Consumer("billing", 0)).close()
        assert "group=billing position=0 bytesBehind=" in at.does("Spark lags", GROUPS)
        at.does("A disk is full", SNAPSHOT)
        at.does("A clock is off", HAND_OVER, "--member", str(other))

        lose(follower)
        at.awaits("A member is lost")
        start(follower)
        at.does("A member is lost", LEVEL)

        lose(follower)
        lose(up.leader)
        at.awaits("Nobody leads")
        at.does("", STORY)
        at.does("", BUNDLE)
        start(follower)
        start(up.leader)
        await_that(lambda: not at.is_shown("Nobody leads"), "a leader")
        at.does("Members do not reach each other", LEVEL)
        at.does("Nobody leads", LOOK)

        for member in (follower, up.leader):
            lose(member, with_disk=True)
            start(member)
        at.awaits("A majority is lost")
        lose(follower)
        directory = str(up.member_dir(follower))
        at.does("A majority is lost", ACCEPT, "--member", str(follower), DIR=directory)
        start(follower)
        at.awaits_end("A majority is lost")
        at.does("A member is lost", LEVEL)


@pytest.mark.slow
def test_a_log_without_room_takes_input_again_when_its_bound_is_enlarged(tmp_path):
    title = "The log has no more room"
    at = Operator(tmp_path / "cluster-data")
    keys = ("log_term_length=64k", "archive_segment_file_length=64k", "log_export_watermark=true")
    with (
        Up(at.directory, *(f"--set={key}" for key in keys), "--set=log_bytes_max=256k", members=1) as up,
        ClusterClient.connect(up.tcp) as client,
    ):
        for _ in range(100):  # more than there is room for, as an export keeps all of it
            client.send(bytes(4000))
        at.awaits(title)
        at.does(title, GROUPS)
        file = up.member_dir(0) / "node.toml"
        file.write_text(file.read_text().replace('"256k"', '"1m"'))
        assert "`SIGHUP`" in SECTIONS[title]
        os.kill(up.pid(0), signal.SIGHUP)
        at.awaits_end(title)
        client.await_committed(30)


@pytest.mark.slow
def test_a_certificate_that_ends_soon_is_renewed_in_place(tmp_path):
    title, at = "A certificate has ended", Operator(tmp_path / "member-0")
    assert run("certs", "--dir", "certs", "--member", "0", "--days", "5", cwd=tmp_path).returncode == 0
    mine = tmp_path / "tls"
    shutil.copytree(tmp_path / "certs", mine)
    port = free_base_port(ports=10)
    (tmp_path / "node.toml").write_text(
        f'members = ["0,127.0.0.1:{port}{f",127.0.0.1:{port + 2}" * 4}"]\n'
        f'tls_certificate = "{mine}/member-0.pem"\ntls_key = "{mine}/member-0.key"\n'
        f'tls_ca = "{mine}/ca.pem"\n'
    )
    with Process(*words("A member is lost", START, FILE=str(tmp_path / "node.toml")), cwd=tmp_path):
        at.awaits(title)
        at.does(title, RENEW)
        for name in ("member-0.pem", "member-0.key"):
            shutil.copy(tmp_path / "certs" / name, mine / name)
        at.awaits_end(title)


@pytest.mark.slow
def test_what_a_service_raises_and_where_its_member_is_can_be_seen(tmp_path):
    title, at = "A service is slow, or dies", Operator(tmp_path / "cluster-data")
    (tmp_path / "failing.py").write_text(
        "from cluster import ClusteredService\n\n\nclass Failing(ClusteredService):\n"
        "    def on_session_message(self, *_):\n        raise ValueError('no such account')\n"
    )
    with Up(
        at.directory, "--service", "failing:Failing", "--set=service_mode=inline", members=1, cwd=tmp_path
    ) as up:
        run("send", "--endpoints", up.tcp, "--linger", "100", text="hello\n")
        await_that(lambda: "no such account" in at.does(title, ERRORS), "what it raised")
        (name,) = words(title, STACKS)
        os.kill(up.pid(0), getattr(signal, f"SIG{name[1:]}"))
        log = up.member_dir(0) / "node.log"
        await_that(lambda: '"stacks": {' in log.read_text(), "the stacks")
