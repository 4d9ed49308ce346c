"""A running member that reads its configuration again."""

from __future__ import annotations

import ast
import json
import os
import signal
from dataclasses import fields
from functools import partial

import pytest

from cluster import ClusterClient
from cluster.consensus.context import ConsensusModuleContext
from cluster.errors import ClusterError
from cluster.node import config_text
from cluster.node.config_keys import RELOADABLE
from cluster.node.node_log import NodeLog
from cluster.node.reload import reload
from cluster.protocol.consumer import Consumer
from cluster.transport.bounds import Bounds
from tests.node.processes import ROOT, Up, await_that

OF_THE_LOG = {"log_level", "node_log_bytes"}


class Running:
    """What a member has of its configuration, and the file that it is from."""

    def __init__(self, tmp_path, text):
        self.path = tmp_path / "node.toml"
        self.path.write_text(text)
        self.read = partial(config_text.load, self.path, environment={})
        self.config = self.read()
        self.context, self.bounds = self.config.module_context, self.config.bounds
        self.log_path = tmp_path / "node.log"
        self.log = NodeLog(self.log_path, self.config.log_level, self.config.node_log_bytes)

    def reload(self, text):
        """Returns the line of node.log about it."""
        self.path.write_text(text)
        self.config = reload(self.config, self.read, (self.context, self.bounds), self.log)
        return json.loads(self.log_path.read_text().splitlines()[-1])


def test_keys_that_may_change_do_so_and_the_others_are_named(tmp_path):
    member = Running(tmp_path, 'session_timeout = "7s"\nlog_mtu = 1408\n')
    assert (member.context.session_timeout_ns, member.bounds.reader_timeout_ns) == (7 * 10**9, 30 * 10**9)
    line = member.reload(
        'session_timeout = "8s"\nreader_timeout = "9s"\nlog_mtu = 4096\nlog_level = "error"\n'
    )
    assert line["event"] == "the configuration was read again"
    assert line["changed"] == {
        "session_timeout": "7s -> 8s", "reader_timeout": "30s -> 9s", "log_level": "info -> error"
    }  # fmt: skip
    assert line["needs_restart"] == {"log_mtu": "1408 -> 4096"}
    assert (member.context.session_timeout_ns, member.bounds.reader_timeout_ns) == (8 * 10**9, 9 * 10**9)
    assert member.context.log_mtu == 1408
    member.log.info("not written any more")
    assert "not written" not in member.log_path.read_text()

    again = member.reload("log_mtu = 4096\n")
    assert again["changed"]["session_timeout"] == "8s -> 10s", "which is the default"
    assert again["needs_restart"] == {"log_mtu": "1408 -> 4096"}, "as long as it is so"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('session_timeout = "8s"\nlog_levle = "debug"\n', 'unknown key "log_levle"; did you mean log_level?'),
        ('session_timeout = "8s"\nlog_mtu = 1000\n', "log_mtu: expected a multiple of 32"),
        ('session_timeout = "8s"\nmember_id = \n', "not TOML"),
        (
            'session_timeout = "8s"\narchive_segment_file_length = "64m"\nlog_bytes_max = "256m"\n',
            "at least four times archive_segment_file_length = 134217728, before a restart",
        ),
    ],
)
def test_a_wrong_file_changes_nothing_and_the_log_says_why(tmp_path, text, why):
    member = Running(tmp_path, "")
    line = member.reload(text)
    assert line["event"] == "the configuration stays as it was" and why in line["why"]
    assert line["level"] == "warning"
    assert member.context.session_timeout_ns == 10 * 10**9


def test_debug_by_signal_stays_on_unless_the_level_changes(tmp_path):
    member = Running(tmp_path, "")
    member.log.toggle_debug()
    member.reload('session_timeout = "8s"\n')
    assert member.log.is_debugging
    member.reload('log_level = "warning"\n')
    assert not member.log.is_debugging


def test_node_log_keeps_within_its_new_bound(tmp_path):
    member = Running(tmp_path, "")
    for _ in range(100):
        member.log.info("x" * 1000)
    member.reload("node_log_bytes = 65536\n")
    assert member.log_path.stat().st_size < 65536
    assert (tmp_path / "node.log.1").stat().st_size > 65536


def test_each_key_that_may_change_belongs_to_a_part_that_is_changed():
    of_parts = {field.name for part in (ConsensusModuleContext, Bounds) for field in fields(part)}
    assert not RELOADABLE - of_parts - OF_THE_LOG


def test_nothing_is_agreed_by_a_key_that_may_change():
    """Elections, the quorum, the clock, what is in the log: these are the same on every member, or nearly."""
    agreed = ("leader_", "election_", "startup_", "appointed_", "clock_", "cluster_", "log_term", "log_mtu")
    assert not [name for name in RELOADABLE if name.startswith(agreed)]


def test_no_part_keeps_a_copy_of_a_key_that_may_change():
    copies = []
    for folder in ("aeron", "consensus", "member", "transport"):
        for path in sorted((ROOT / "cluster" / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                    names = {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}
                    copies += [f"{path.relative_to(ROOT)}: {name}" for name in names & RELOADABLE]
    assert copies == []


def test_a_member_takes_what_changed_when_it_gets_the_signal(tmp_path):
    with Up(tmp_path / "c", "--set", "consumers_max=1", members=1) as up:
        file, log = up.member_dir(0) / "node.toml", up.member_dir(0) / "node.log"
        text = file.read_text()

        def report(group):
            ClusterClient.connect(up.tcp, consumer=Consumer(group, 0)).close()

        def change(to):
            file.write_text(text.replace('consumers_max = "1"', to))
            os.kill(up.pid(0), signal.SIGHUP)

        report("billing")
        with pytest.raises(ClusterError, match="as many as consumers_max allows"):
            report("audit")
        change("consumers_max = 0")
        await_that(lambda: "consumers_max = 0: expected" in log.read_text(), "why it was not taken")
        change('consumers_max = 2\nlog_mtu = 4096\nlog_level = "debug"')
        await_that(lambda: "was read again" in log.read_text(), "that it was taken")
        assert '"changed": {"consumers_max": "1 -> 2", "log_level": "info -> debug"}' in log.read_text()
        assert '"needs_restart": {"log_mtu": "1408 -> 4096"}' in log.read_text()
        report("audit")
        await_that(lambda: "SessionConnectRequest" in log.read_text(), "a message, as by level debug")
        up.signal()
        assert up.end() == (0, "", "")
