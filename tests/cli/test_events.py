"""``cluster events``: lines of several members' logs, here and elsewhere, torn and rotated, by time."""

import json
import os
from datetime import UTC, datetime, timedelta

import pytest

from cluster.cli import events
from cluster.cli.durations import time_of
from cluster.protocol.link import EndOfStream, LinkErrorCode
from cluster.transport import member_status
from cluster.transport.endpoint import parse_endpoint
from cluster.transport.event_logs import EventLogs
from cluster.transport.log_client import Unreachable

GROUP = "events"

REFUSED = {
    "time": "2026-01-27T12:00:03Z", "peer": "10.0.0.7", "principal": "", "what": "a login", "why": "x"
}  # fmt: skip


def line(second, event, level="info", **fields):
    at = f"2026-01-27T12:00:{second:02}.5Z"
    return json.dumps({"event": event, "level": level, "timestamp": at, **fields}) + "\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.delenv("CLUSTER_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    logs = {
        "member-0/node.log.1": line(1, "starts", member=0, pid=17),
        "member-0/node.log": line(4, "role FOLLOWER -> LEADER", member=0) + line(6, "a", "error", member=0),
        "member-1/node.log": line(2, "starts", member=1) + line(5, "member 0 leads", member=1),
        "member-1/audit.log": json.dumps(REFUSED) + "\n",
        "member-1/audit-metrics.log": json.dumps(REFUSED | {"what": "StatusRequest"}) + "\n",
    }
    for name, text in logs.items():
        path = tmp_path / "cluster-data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "cluster-data"


def test_lines_of_all_members_stand_in_the_order_of_time(run, here):
    ended, out, _ = run()

    assert ended == 0
    assert [text[28:] for text in out.splitlines()] == [
        "0  starts pid=17",
        "1  starts",
        "1  WARNING: refused a login to somebody at 10.0.0.7: x",
        "1  WARNING: refused StatusRequest to somebody at 10.0.0.7: x",
        "0  role FOLLOWER -> LEADER",
        "1  member 0 leads",
        "0  ERROR: a",
    ]


def test_lines_are_chosen_by_time_level_and_member_and_stay_as_they_were_in_json(run, here):
    assert len(run("--since", "2026-01-27T12:00:04+00:00")[1].splitlines()) == 3
    assert len(run("--level", "warning")[1].splitlines()) == 3
    assert run("--since", "1s")[1] == ""
    assert run("--member", "0")[1].count("\n") == 3
    first = json.loads(run("--json")[1].splitlines()[0])
    assert first == json.loads(line(1, "starts", member=0, pid=17)) | {
        "file": "cluster-data/member-0/node.log"
    }


@pytest.mark.parametrize(
    "fields, told",
    [
        ({"event": "ends", "in_order": True}, "ends in order"),
        ({"event": "ends", "in_order": False}, "ends"),
        ({"event": "refused", "why": "x 1", "more": 46, "kind": "x #"}, "refused why=x 1 (46 more)"),
    ],
)
def test_fields_that_are_words_are_read_as_words(run, here, fields, told):
    with (here / "member-1/node.log").open("a") as log:
        log.write(line(7, **fields))
    assert run("--since", "2026-01-27T12:00:07Z")[1][31:] == f"{told}\n"


def test_an_action_of_an_administrator_is_told_with_what_came_of_it(run, here):
    action = REFUSED | {"time": "2026-01-27T12:00:08Z", "principal": "root", "what": "SNAPSHOT"}
    del action["why"]
    with (here / "member-1/audit.log").open("a") as log:
        log.write(json.dumps(action | {"outcome": "done"}) + "\n")
    assert run("--since", "2026-01-27T12:00:07Z")[1][28:] == "1  SNAPSHOT for root at 10.0.0.7: done\n"


def test_an_error_is_one_line_that_leaves_its_traceback_to_json(run, here):
    with (here / "member-1/node.log").open("a") as log:
        log.write(line(7, "expected 17 bytes", "error", where="service 0", trace="Traceback …\n  File …"))
    assert run("--since", "2026-01-27T12:00:07Z")[1][28:] == "1  ERROR: expected 17 bytes where=service 0\n"
    assert '"trace": "Traceback' in run("--since", "2026-01-27T12:00:07Z", "--json")[1]


def test_the_stacks_that_a_signal_asked_for_are_no_part_of_the_story(run, here):
    with (here / "member-1/node.log").open("a") as log:
        log.write(line(7, "stacks", "info", stacks={"139949789275840": ["  File …"]}))
    assert run("--since", "2026-01-27T12:00:07Z")[1][28:] == "1  stacks\n"


def test_what_is_no_json_keeps_its_place_and_moves_no_cursor(run, here):
    with (here / "member-1/node.log").open("ab") as log:
        log.write(b"\x9b2J torn \xff\n" + line(3, "of a clock that was set back").encode())

    texts = run()[1].splitlines()

    assert [text[:24] for text in texts[6:8]] == ["2026-01-27T12:00:05.500Z"] * 2
    assert "torn" in texts[6] and all(text.isprintable() for text in texts)


def play_while_it_waits(monkeypatch, steps):
    """Each wait of the command plays the next step, and the one after the last is Ctrl-C."""

    def sleep(_):
        if not steps:
            raise KeyboardInterrupt
        steps.pop(0)()

    monkeypatch.setattr(events.time, "sleep", sleep)


def test_following_goes_on_over_a_rotation_and_prints_no_half_line(run, here, monkeypatch):
    path = here / "member-0/node.log"
    steps = [
        lambda: path.open("a").write(line(7, "whole") + '{"event": "ha'),
        lambda: path.open("a").write('lf", "timestamp": "2026-01-27T12:00:08Z"}\n'),
        lambda: (os.replace(path, f"{path}.1"), path.write_text(line(9, "in the new file"))),
    ]
    play_while_it_waits(monkeypatch, steps)

    ended, out, _ = run("--follow", "--since", "2026-01-27T12:00:06.9Z")

    assert ended == 130
    assert [text[31:] for text in out.splitlines()] == [
        "whole", "half", "in the new file"
    ]  # fmt: skip


def test_how_long_ago_is_given_with_its_unit():
    for given, ago in (("90s", 90), ("10m", 600), ("2h", 7_200), ("1d", 86_400)):
        since = time_of("--since", given)
        assert abs(datetime.now(UTC) - timedelta(seconds=ago) - since) < timedelta(seconds=5)


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--since", "5x"], "--since is '5x'; expected how long ago"),
        (["--level", "loud"], "--level is 'loud'; expected one of debug"),
        (["--member", "0", "--member", "7"], "no member 7 here: 0, 1"),
        (["--dir", "nowhere"], "nowhere: no such directory"),
        (["--dir", "."], ".: no node.log, backup.log, audit.log, audit-metrics.log is in it"),
    ],
)
def test_what_cannot_be_shown_is_refused_by_name(run, here, arguments, said):
    ended, out, told = run(*arguments)
    assert ended in (1, 2) and out == "" and said in told


def test_the_last_line_of_a_file_that_was_replaced_is_there_though_it_has_no_end(tmp_path):
    path = tmp_path / "node.log"
    path.write_text(line(1, "one") + line(2, "cut short").rstrip())
    log = events.logs_in(tmp_path)[0]
    assert [event.text for event in log.lines()] == ["one"]
    path.rename(tmp_path / "node.log.1")
    path.write_text(line(3, "two"))

    assert [event.text for event in log.lines()] == ["cut short", "two"]


class Elsewhere:
    """Clients of members whose logs are in a directory of the test; those in ``gone`` do not answer."""

    def __init__(self, directory, monkeypatch):
        self.directory = directory
        self.gone = set()
        ids = {"db0": 0, "db1": 1}

        class Client:
            def __init__(client, host):
                client.host = host

            def read_events(client, request):
                if client.host in self.gone:
                    raise Unreachable(f"{client.host}:9000: Connection refused")
                member = ids[client.host]
                code, text = LinkErrorCode.OK, ""
                try:
                    yield from EventLogs(str(self.directory / f"member-{member}"), member).lines(request)
                except OSError as error:
                    code, text = LinkErrorCode.FAILED, str(error)
                yield EndOfStream(0, 0, code, text)

        def answers(known):
            known[0] = known.pop(-1)
            known[1] = parse_endpoint("db1:9000")  # as each member says of the others
            return known

        monkeypatch.setattr(events, "ask_members", answers)
        monkeypatch.setattr(
            member_status, "log_client_opener", lambda _: lambda endpoint: Client(endpoint.host)
        )


@pytest.fixture
def elsewhere(here, monkeypatch):
    return Elsewhere(here, monkeypatch)


def test_members_elsewhere_have_the_same_story(run, elsewhere):
    ended, out, _ = run("--endpoints", "db0:9000")
    assert (ended, out) == (0, run()[1])
    assert run("--endpoints", "db0:9000", "--since", "2026-01-27T12:00:04Z")[1].count("\n") == 3
    ended, _, told = run("--endpoints", "db0:9000", "--member", "7")
    assert ended == 2 and "no member 7 here: 0, 1" in told
    files = [json.loads(text)["file"] for text in run("--endpoints", "db0:9000", "--json")[1].splitlines()]
    assert files[:2] == ["db0:9000/node.log", "db1:9000/node.log"]


def test_a_log_that_cannot_be_read_is_named_once_and_the_others_are_shown(run, here, elsewhere, monkeypatch):
    (here / "member-0/node.log").unlink()
    (here / "member-0/node.log").mkdir()
    why = "0  ERROR: cluster-data/member-0/node.log cannot be read, its events are missing: Is a directory"
    others = ["starts pid=17", "starts", "refused a login", "refused StatusRequest", "member 0 leads"]

    ended, out, _ = run()
    assert (ended, out.splitlines()[-1][28:]) == (0, why)
    assert all(said in text for said, text in zip(others, out.splitlines(), strict=False))
    assert out.count("\n") == len(others) + 1
    assert run("--level", "error", "--since", "1m")[1][28:] == f"{why}\n"
    told = run("--endpoints", "db0:9000")[1]
    assert told.count("\n") == len(others) + 1 and "ERROR: db0:9000/node.log cannot be read" in told
    assert b"Is a directory" in events.log_ends("db0:9000", 99)[0]["node.log"]

    play_while_it_waits(monkeypatch, [lambda: None, lambda: None])
    assert run("--follow")[1].count("cannot be read") == 1


def test_a_member_that_does_not_answer_is_named_and_when_it_does_nothing_was_missed(
    run, elsewhere, monkeypatch
):
    elsewhere.gone = {"db0"}
    missing = "db0:9000: Connection refused: its events are missing\n"
    ended, out, told = run("--endpoints", "db0:9000")
    assert (ended, out.count("\n"), told) == (0, 4, missing)
    elsewhere.gone = {"db0", "db1"}
    assert run("--endpoints", "db0:9000")[0] == 1

    steps = [elsewhere.gone.clear, lambda: elsewhere.gone.add("db1"), lambda: None]
    play_while_it_waits(monkeypatch, steps)
    ended, out, told = run("--endpoints", "db0:9000", "--follow")
    assert (ended, out) == (130, run()[1]) and told.count("are missing") == 3
