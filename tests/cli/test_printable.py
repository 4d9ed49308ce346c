"""What strangers wrote comes out of every command and log as text, and moves no terminal's cursor."""

import json
import os
import re
import sys
import traceback

import pytest

from cluster.cli.main import main
from cluster.cli.printable import TEXTS_MAX, AsideStream, leave_streams_to_services, printable_streams
from cluster.errors import ClusterError, LogDamaged, StorageError
from cluster.node.node_log import NodeLog
from cluster.security.audit import AuditLog
from cluster.transport.log_client import Unreachable
from jobs.command import run_main
from spark_connector.log import warn
from tests.archive.logs import T0
from tests.archive.members import Member

WRITTEN = "\x1b[31m\u009b2J\u202eb\u2066\x7f\r[/]"
SHOWN = r"\u001b[31m\u009b2J\u202eb\u2066\u007f\r[/]"
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def is_text(out):
    return r"\u001b[31m" in out and r"\u007f\r" in out and not CONTROLS.search(out)


@pytest.fixture
def errors_of_a_service(tmp_path):
    member = Member(tmp_path / "member")
    member.marks[2].record_error(f"b'{WRITTEN}'", T0)
    member.stop()
    return ["tool", "errors", "--dir", str(tmp_path / "member")]


@pytest.fixture
def logs(tmp_path):
    log, audit = NodeLog(tmp_path / "node.log", "info"), AuditLog(str(tmp_path / "audit.log"))
    log.info("cut off", why=WRITTEN)
    log.often("cut off", WRITTEN, 0)
    log.error("serving", ClusterError(WRITTEN))
    audit.refused(WRITTEN, WRITTEN.encode(), "a login", WRITTEN)
    log.close()
    audit.close()
    return tmp_path


def test_files_of_lines_hold_escapes(logs):
    for name in ("node.log", "audit.log"):
        text = (logs / name).read_text()
        assert is_text(text) and [json.loads(line) for line in text.splitlines()]


def test_errors_of_services_and_events_are_printed_as_text(capsys, logs, errors_of_a_service):
    for words in (errors_of_a_service, ["events", "--dir", str(logs)]):
        assert main(words) == 0
        assert is_text(capsys.readouterr().out)


def test_what_members_answer_is_printed_as_text_and_not_as_markup(capsys, monkeypatch):
    group = {"group": WRITTEN, "position": 1, "bytesBehind": 0}
    found = {"memberId": 0, "isAlive": True, "electionState": None, "role": WRITTEN, "consumers": [group]}
    with monkeypatch.context() as answered:
        answered.setattr("cluster.cli.top._ask", lambda _: [found | {"error": WRITTEN}])
        assert main(["top", "--once", "--endpoints", "localhost:1"]) == 0
    assert is_text(shown := capsys.readouterr().out) and shown.count("[/]") == 3

    for command, asking in (("top", "top"), ("status", "status_document")):
        monkeypatch.setattr(f"cluster.cli.{asking}.ask_members", lambda *_: {0: Unreachable(WRITTEN)})
        assert main([command, "--endpoints", "localhost:1"]) == 1
        shown = capsys.readouterr()
        assert is_text(shown.out + shown.err) and "no member answers: " in shown.out + shown.err


def test_error_lines_of_commands_jobs_and_the_source_are_text(capsys):
    def fail():
        raise ClusterError(WRITTEN)

    assert main(["status", "--dir", WRITTEN]) == 1
    with pytest.raises(SystemExit):
        run_main(fail)
    warn(WRITTEN)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3 and all(map(is_text, lines))


def test_what_an_error_says_is_text_wherever_it_is_shown():
    for error in (ClusterError(WRITTEN), LogDamaged("f", 1, WRITTEN), StorageError(WRITTEN, None)):
        assert SHOWN in str(error) and is_text("".join(traceback.format_exception(error)))


def test_lines_and_columns_of_ours_and_what_a_service_prints_stay_as_they_are(capsys):
    with printable_streams():
        print("a\tb\n")
        sys.stderr.writelines(["c\n", WRITTEN])
        leave_streams_to_services()
        print(WRITTEN)
    assert capsys.readouterr() == (f"a\tb\n\n{WRITTEN}\n", f"c\n{SHOWN}")


def test_a_pipe_that_nobody_reads_holds_up_nobody_who_writes_aside():
    read, write = os.pipe()
    with open(write, "w") as pipe:
        try:
            aside = AsideStream(pipe)
            aside.write(WRITTEN)
            for _ in range(2 * TEXTS_MAX):
                aside.write("z" * 10_000 + "\n")  # for ever, if it were held up
            assert os.read(read, 100).decode().startswith(SHOWN)
        finally:
            os.close(read)  # ends the thread, which waits for room
            aside.close()
