"""``cluster log``: what it prints and writes, and how it fails."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from cluster.cli.log import EntryType
from cluster.cli.main import main
from cluster.log.columns import ROW_SCHEMA
from cluster.log.entry_filter import TEMPLATE_IDS
from cluster.protocol.log import SessionOpenEvent
from cluster.reader import LogReader
from tests.aeron.recorded import STREAM, TERM_LENGTH, recorded
from tests.aeron.scripted_aeron import Script, open_recording, open_scripted
from tests.archive.logs import SEGMENT_LENGTH, LogWriter, a_log
from tests.archive.members import Member, write_member
from tests.reader.object_store import object_store
from tests.reader.real import as_read, expected, members

GROUP = "log"


@pytest.mark.parametrize("member", [0, 1, 2])
def test_dump_prints_every_entry_as_an_object(run, member):
    status, out, err = run("dump", "--dir", members() / f"member-{member}", "--json", "--payload", "sha256")
    assert (status, err) == (0, "")
    entries = [json.loads(line) for line in out.splitlines()]
    for entry in entries:
        moment = datetime.fromisoformat(entry.pop("timestamp"))
        assert moment.timestamp() == entry["clusterTime"] / 1000
        assert moment.utcoffset().total_seconds() == 0
        if "encodedPrincipal" in entry:
            assert entry["encodedPrincipal"] == ""
    assert tuple(entries) == expected()


@pytest.mark.parametrize(
    ("form", "shown"),
    [
        ("base64", lambda payload: {"payload": base64.b64encode(payload).decode()}),
        ("hex", lambda payload: {"payload": payload.hex()}),
        ("utf8", lambda payload: {"payload": payload.decode("utf-8", "replace")}),
        ("none", lambda payload: {}),
        (
            "sha256",
            lambda payload: {
                "payloadLength": len(payload),
                "payloadSha256": hashlib.sha256(payload).hexdigest(),
            },
        ),
    ],
)
def test_payloads_are_shown_as_asked_for(run, tmp_path, form, shown):
    payloads = [b"plain", "größer".encode(), b"", b"\xff\x00\n", b"x" * 5000]
    log = LogWriter()
    log.term(0)
    for payload in payloads:
        log.message(payload)
    write_member(tmp_path, log)
    default = () if form == "base64" else ("--payload", form)
    _, out, _ = run("dump", "--dir", tmp_path, "--json", *default)
    found = [json.loads(line) for line in out.splitlines()][1:]
    names = {"payload", "payloadLength", "payloadSha256"}
    assert [{k: v for k, v in entry.items() if k in names} for entry in found] == [
        shown(payload) for payload in payloads
    ]


def test_people_see_payloads_as_text_and_what_is_none_as_base64(run, tmp_path):
    log = LogWriter()
    log.term(0)
    for payload in (b"plain", "größer als".encode(), b"two\nlines", b"\xff\x00", b"\x1b[31m", b""):
        log.message(payload)
    write_member(tmp_path, log)
    for verb in ("dump", "tail"):
        _, out, _ = run(verb, "--dir", tmp_path)
        assert [line.partition("payload=")[2] for line in out.splitlines()[1:]] == [
            "plain", '"größer als"', '"two\\nlines"', "base64:/wA=", "base64:G1szMW0=", '""',
        ]  # fmt: skip


def test_entries_are_chosen_by_type_and_by_session(run):
    def shown(verb, *options):
        _, out, _ = run(verb, "--dir", members() / "member-0", "--json", "--payload", "none", *options)
        return [json.loads(line)["position"] for line in out.splitlines()]

    def wanted(**values):
        return [e["position"] for e in expected() if all(e.get(k) in v for k, v in values.items())]

    types = ("TIMER", "SESSION_OPEN")
    for verb, at_most in (("dump", 10**6), ("tail", 10)):
        by_type = shown(verb, "--type", "timer", "--type", "SESSION_OPEN")
        assert by_type == wanted(entryType=types)[-at_most:] != []
        by_session = shown(verb, "--session", 2)
        assert by_session == wanted(clusterSessionId=(2,))[-at_most:] != []
        assert shown(verb, "--session", 2, "--type", "TIMER") == []
    assert set(EntryType) == set(TEMPLATE_IDS)


def test_from_and_to_are_positions_of_first_frames(run):
    entries = [entry["position"] for entry in expected()]
    for begin, end in ((139_424, 140_000), (139_425, 139_872), (0, 96), (250_048, 10**9), (250_144, 300_000)):
        _, out, _ = run("dump", "--dir", members() / "member-0", "--json", "--from", begin, "--to", end)
        assert [json.loads(line)["position"] for line in out.splitlines()] == [
            position for position in entries if begin <= position < end
        ]


@pytest.mark.parametrize("verb", [["dump", "--json"], ["export", "log.parquet"]])
def test_from_a_position_after_the_logs_end_is_told_with_where_that_is(run, tmp_path, monkeypatch, verb):
    monkeypatch.chdir(tmp_path)
    end = expected()[-1]["endPosition"]
    for position, warned in (
        (end, ""),
        (end + 32, f"warning: --from {end + 32} is after the end of the log, {end}\n"),
    ):
        status, _, err = run(*verb, "--dir", members() / "member-0", "--from", position)
        assert (status, err) == (0, warned)


@pytest.mark.parametrize("verb", [["dump"], ["dump", "--json"], ["export", "log.parquet"]])
def test_from_a_position_that_was_purged_is_told_with_where_the_log_begins(run, tmp_path, monkeypatch, verb):
    monkeypatch.chdir(tmp_path)
    log = a_log(1000)
    member = Member(tmp_path)
    member.write(log)
    start = member.recording.purge_to(2 * SEGMENT_LENGTH)
    for position in (0, start - 32):
        status, out, err = run(*verb, "--dir", tmp_path, "--from", position)
        assert (status, out) == (1, "")
        assert f"position {position} was purged, the log begins at {start}" in err
    assert run(*verb, "--dir", tmp_path, "--from", start)[0] == 0
    assert run(*verb, "--dir", tmp_path)[0] == 0


def test_text_has_one_line_an_entry_whatever_a_payload_holds(run, tmp_path):
    log = LogWriter()
    log.term(0)
    log.message(b"two\nlines and a \x1b[31m colour")
    write_member(tmp_path, log)
    _, out, _ = run("dump", "--dir", tmp_path, "--payload", "utf8")
    first, second = out.splitlines()
    assert first.split()[:4] == ["0", "96", "term", "0"]
    assert second.endswith(
        'SESSION_MESSAGE clusterSessionId=1 payload="two\\nlines and a \\u001b[31m colour"'
    )


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        (b'{"id": 7}', """'{"id": 7}'"""),
        (b'{"id":7}', '{"id":7}'),
        (b"two words", '"two words"'),
        (b"""{"of": "Pat's"}""", r'''"{\"of\": \"Pat's\"}"'''),
        (b'a" \\ b', r'"a\" \\ b"'),
    ],
)
def test_a_payload_is_quoted_so_that_json_stays_readable(run, tmp_path, payload, shown):
    log = LogWriter()
    log.term(0)
    log.message(payload)
    write_member(tmp_path, log)
    assert run("dump", "--dir", tmp_path)[1].endswith(f"payload={shown}\n")


def test_the_hash_in_a_response_channel_is_cut_short_for_people(run, tmp_path, monkeypatch):
    log = LogWriter()
    log.term(0)
    channel = f"aeron:ipc?resume-hash={'0123456789abcdef' * 4}|supervised=true"
    log.append(SessionOpenEvent(0, 42, 1, log.time, 102, channel, b"").encode())
    log.message(channel.encode())
    write_member(tmp_path, log)
    text, as_json = (run("dump", "--dir", tmp_path, *more)[1].splitlines() for more in ((), ("--json",)))
    assert "responseChannel=aeron:ipc?resume-hash=01234567...|supervised=true " in text[1]
    assert channel in text[2], "a payload is shown whole"
    assert json.loads(as_json[1])["responseChannel"] == channel


def test_no_control_of_a_terminal_comes_through_in_text(run, tmp_path):
    log = LogWriter()
    log.term(0)
    log.message("a\u009b31mb\u202ec\x7fd\u00e9".encode())
    write_member(tmp_path, log)
    _, out, _ = run("tail", "--dir", tmp_path, "--payload", "utf8")
    assert out.endswith('payload="a\\u009b31mb\\u202ec\\u007fd\u00e9"\n')


def test_tail_shows_the_last_entries_over_terms_and_segments(run, tmp_path):
    log = a_log(1000)
    write_member(tmp_path, log)
    for count in (0, 1, 10, 700, 10_000):
        _, out, _ = run("tail", "--dir", tmp_path, "-n", count, "--json")
        shown = [json.loads(line)["position"] for line in out.splitlines()]
        assert shown == [begin for begin, _ in log.entries][max(len(log.entries) - count, 0) :]


@pytest.mark.parametrize("format", ["arrow", "parquet"])
@pytest.mark.parametrize("is_named", [True, False])
def test_export_writes_typed_columns(run, tmp_path, format, is_named):
    file = tmp_path / f"log.{format}"
    chosen = ["--format", format] if is_named else []
    status, out, _ = run("export", "--dir", members() / "member-2", *chosen, file)
    assert (status, out) == (0, f"761 entries in {file}\n")
    table = pq.read_table(file) if format == "parquet" else pa.ipc.open_file(pa.OSFile(str(file))).read_all()
    assert table.schema.equals(ROW_SCHEMA)
    rows = [{k: v for k, v in row.items() if v is not None} for row in table.to_pylist()]
    assert tuple(as_read(row) for row in rows) == expected()
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_export_writes_csv_with_payloads_as_text_where_they_are(run, tmp_path):
    log = LogWriter()
    log.term(0)
    for payload in (b"plain", b'two\nlines, "quoted"', b"\xff\x00"):
        log.message(payload)
    write_member(tmp_path, log)
    file = tmp_path / "log.csv"
    assert run("export", "--dir", tmp_path, file)[:2] == (0, f"4 entries in {file}\n")
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert tuple(rows[0]) == tuple(ROW_SCHEMA.names)
    assert [row["payload"] for row in rows] == ["", "plain", 'two\nlines, "quoted"', "base64:/wA="]


@pytest.mark.parametrize(
    ("partition", "column"), [("term", "leadershipTermId"), ("type", "entryType"), ("day", "day")]
)
def test_export_by_partition_is_a_table_to_who_knows_hives_folders(run, tmp_path, partition, column):
    folder = tmp_path / "by"
    assert run("export", "--dir", members() / "member-2", "--partition", partition, folder)[0] == 0
    assert {path.name.partition("=")[0] for path in folder.iterdir()} == {column}
    table = pyarrow.dataset.dataset(folder, partitioning="hive").to_table()
    assert set(table.column_names) == {*ROW_SCHEMA.names, column}
    assert table.num_rows == 761 and table.column(column).null_count == 0
    assert [path.name for path in tmp_path.iterdir()] == ["by"]


def test_entries_are_chosen_by_term_and_by_time(run):
    def positions(*arguments):
        _, out, _ = run("dump", "--dir", members() / "member-0", "--json", "--payload", "none", *arguments)
        return [json.loads(line) for line in out.splitlines()]

    entries = positions()
    terms = sorted({entry["leadershipTermId"] for entry in entries})
    for term in terms:
        assert positions("--term", term) == [e for e in entries if e["leadershipTermId"] == term]
    assert positions("--term", terms[-1] + 1) == []
    moment = entries[len(entries) // 2]["timestamp"]
    assert positions("--since", moment) == [e for e in entries if e["timestamp"] >= moment]
    assert positions("--until", moment) == [e for e in entries if e["timestamp"] < moment]
    assert positions("--since", moment, "--until", moment) == []
    assert positions("--since", "1h") == []
    _, out, _ = run(
        "tail", "--dir", members() / "member-0", "--json", "-n", 2, "--until", moment, "--payload", "none"
    )
    assert [json.loads(line) for line in out.splitlines()] == [e for e in entries if e["timestamp"] < moment][
        -2:
    ]


def test_a_terminal_shows_kinds_of_entries_in_colours_and_no_escape_of_a_payload(run, tmp_path, monkeypatch):
    log = LogWriter()
    log.term(0)
    log.message(b"\x1b[31m")
    write_member(tmp_path, log)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    term, message = run("dump", "--dir", tmp_path, "--payload", "utf8")[1].splitlines()
    assert term.startswith("\x1b[36m") and term.endswith("\x1b[0m")
    assert "\x1b" not in message
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in run("dump", "--dir", tmp_path)[1]


def test_the_directory_is_the_one_of_the_environment_or_cluster_data(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLUSTER_DIR", str(members() / "member-0"))
    assert len(run("tail", "-n", 1)[1].splitlines()) == 1
    monkeypatch.delenv("CLUSTER_DIR")
    (tmp_path / "cluster-data").symlink_to(members())
    assert len(run("tail", "-n", 1)[1].splitlines()) == 1
    for command in (["tool", "recording-log"], ["archive", "describe"], ["tool", "describe"]):
        assert main(command) == 0


def test_export_adds_to_a_folder_what_it_does_not_have(run, tmp_path):
    folder = tmp_path / "exported"
    status, out, _ = run("export", "--dir", members() / "member-2", "--append", folder)
    assert (status, out.splitlines()[-1]) == (0, f"{folder} has the log up to position 250144")
    table = pq.read_table(next(folder.iterdir()))
    rows = [{k: v for k, v in row.items() if v is not None} for row in table.to_pylist()]
    assert tuple(as_read(row) for row in rows) == expected()
    _, out, _ = run("export", "--dir", members() / "member-0", "--append", folder, "--json")
    assert json.loads(out) == {"folder": str(folder), "files": [], "end": 250_144}
    status, _, err = run("export", "--dir", members() / "member-0", "--append", folder, "--from", 96)
    assert status == 2 and "--append: it exports the whole log" in err


def test_export_writes_to_an_object_store_as_to_a_disk(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with object_store() as store:
        for arguments in (["log.arrow"], ["--format", "parquet", "log"], ["--append", "folder"]):
            *options, key = arguments
            status, out, _ = run("export", "--dir", members() / "member-2", *options, store.uri(key))
            assert status == 0 and ("761 entries" in out or "up to position 250144" in out)
        found = {name: value for name, value in store.objects.items() if not name.endswith("/")}
        file = f"bucket/folder/{0:020}-{250_144:020}.parquet"
        assert sorted(found) == [file, "bucket/log", "bucket/log.arrow"]
        assert pa.ipc.open_file(found["bucket/log.arrow"]).read_all().num_rows == 761
        for name in (file, "bucket/log"):
            assert pq.read_table(pa.BufferReader(found[name])).num_rows == 761

        store.is_refusing = True
        status, _, err = run("export", "--dir", members() / "member-2", store.uri("late.arrow"))
        assert status == 1 and "late.arrow" in err and "writing failed: When" in err
        assert "secret" not in out + err and "s3://***@bucket/" in out and "s3://***@bucket/" in err
    assert list(tmp_path.iterdir()) == []


def test_export_of_an_unknown_kind_is_wrong_usage(run, tmp_path):
    status, _, err = run("export", "--dir", members() / "member-0", tmp_path / "log.txt")
    assert status == 2
    assert "expected one of arrow, parquet, csv" in err
    status, _, err = run("export", "--dir", members() / "member-0", tmp_path / "no" / "log.parquet")
    assert status == 1
    assert err.startswith(f"{tmp_path}/no/log.parquet: writing failed: No such file or directory")


def test_damage_is_told_on_standard_error_and_the_rest_is_printed(run, tmp_path):
    log = a_log(100)
    write_member(tmp_path, log)
    segment = tmp_path / "archive" / "0-0.rec"
    begin, _ = log.entries[40]
    data = bytearray(segment.read_bytes())
    data[begin + 20] ^= 1
    segment.write_bytes(data)
    status, out, err = run("dump", "--dir", tmp_path, "--json")
    assert status == 1
    assert len(out.splitlines()) == len(log.entries) - 1
    assert err.startswith(f"damaged: {segment} at offset {begin}: term id 1 at log position {begin}")
    status, out, _ = run("export", "--dir", tmp_path, tmp_path / "log.parquet")
    assert (status, out.split()[0]) == (1, str(len(log.entries) - 1))


def test_a_log_that_was_not_stopped_in_order_is_printed_with_a_warning(run, tmp_path):
    log = a_log(20)
    write_member(tmp_path, log, is_clean=False)
    status, out, err = run("dump", "--dir", tmp_path, "--json")
    assert (status, len(out.splitlines())) == (0, len(log.entries))
    assert err.startswith(f"warning: {tmp_path}/archive: the member did not stop in order")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "status", "what"),
    [
        (["dump", "--dir", "{tmp}/nowhere"], 1, "nowhere: no such directory"),
        (["dump", "--dir", "{tmp}"], 1, "not a member's directory, no archive.catalog is in it"),
        (["tail", "--archive-dir", "{tmp}"], 1, "no archive is here, archive.catalog is missing"),
        (
            ["dump"],
            1,
            "cluster-data: no such directory; start a cluster here with `cluster up`, or name a directory",
        ),
        (["dump", "--dir", "{tmp}", "--endpoints", "0=h:1"], 2, "give either --dir or --endpoints"),
        (["dump", "--dir", "{tmp}", "--payload", "rot13"], 2, "payload"),
        (["dump", "--dir", "{tmp}", "--from", "-1"], 2, "from"),
        (
            ["dump", "--dir", "{tmp}", "--from", "96", "--to", "64"],
            2,
            "--from: 96: expected a position up to --to, 64",
        ),
        (
            ["export", "--from", "96", "--to", "64", "a.parquet"],
            2,
            "--from: 96: expected a position up to --to",
        ),
        (["dunp"], 2, "dunp"),
    ],
)
def test_what_goes_wrong_is_one_plain_line_and_a_status(run, tmp_path, arguments, status, what):
    found, out, err = run(*(argument.replace("{tmp}", str(tmp_path)) for argument in arguments))
    assert (found, out) == (status, "")
    assert what in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    "command", [["log", "dump"], ["log", "tail"], ["top"], ["send", __file__], ["bench"]], ids=" ".join
)
def test_members_may_be_named_by_the_environment(capsys, monkeypatch, command):
    monkeypatch.setenv("CLUSTER_ENDPOINTS", "nowhere")
    assert main(command) == 2
    assert "endpoint 'nowhere': expected host:port" in capsys.readouterr().err


def test_a_directory_goes_before_the_members_of_the_environment(run, monkeypatch):
    monkeypatch.setenv("CLUSTER_ENDPOINTS", "nowhere")
    assert run("tail", "-n", 1, "--dir", members() / "member-0")[0] == 0


@pytest.mark.parametrize("command", ["dump", "tail", "export"])
def test_help_has_an_example(run, command):
    status, out, _ = run(command, "--help")
    assert status == 0
    assert f"cluster log {command} --dir" in out


def test_a_member_s_directory_may_be_named_from_within(run, monkeypatch):
    monkeypatch.chdir(members() / "member-0")
    for path in (".", "archive", "cluster", Path.cwd()):
        status, out, _ = run("tail", "-n", 1, "--dir", path, "--json")
        assert (status, json.loads(out)["endPosition"]) == (0, 250_144)


def test_a_recording_of_an_archive_is_printed_fragment_by_fragment(run, monkeypatch, tmp_path):
    data, rows = recorded(1)
    with open_recording(monkeypatch, [Script(3, data, TERM_LENGTH, stream_id=STREAM)], 3):
        place = ["--aeron-archive", "archive:8010", "--recording-id", 3]
        lines = run("dump", *place, "--payload", "none")[1].splitlines()
        assert lines[1].split() == [
            *("64", "128", "frameFlags=128", "termId=9", "termOffset=64"),
            *("frameSessionId=-7", "streamId=1001", "reservedValue=192"),
        ]
        (last,) = run("tail", "-n", 1, *place, "--json")[1].splitlines()
        assert json.loads(last) == rows[-1] | {"payload": base64.b64encode(rows[-1]["payload"]).decode()}
        for name in ("it.parquet", "it.csv"):
            assert run("export", *place, tmp_path / name)[0] == 0
        assert pq.read_table(tmp_path / "it.parquet").to_pylist() == rows
        assert len((tmp_path / "it.csv").read_text().splitlines()) == 1 + len(rows)
        for folder in ("--append", "--partition=day"):
            status, _, err = run("export", *place, folder, tmp_path / "folder")
            assert (status, "this recording has fragments of something else" in err) == (2, True)
        status, _, err = run("dump", *place[:2])
        assert (status, "archive archive:8010 has 3: stream 1001 of aeron:ipc" in err) == (2, True)
        assert run("dump", *place, "--type", "TIMER")[0] == 2
    for beside in (["--endpoints", "a:1"], ["--dir", "d"], ["--consensus-endpoints", "a"]):
        assert run("dump", *place, *beside)[0] == 2
    assert run("dump", "--recording-id", 3, "--dir", "d")[0] == 2


def test_a_real_cluster_that_runs_is_read_by_its_consensus_endpoints(run, monkeypatch):
    with LogReader.open(dir=str(members() / "member-0")) as reader:
        data = np.concatenate([block for _, block in reader.blocks()])
        scripts = [Script(member, data, reader.term_length) for member in range(3)]
    with open_scripted(monkeypatch, scripts):
        places = ["--consensus-endpoints", "host:9000,host:9001,host:9002"]
        printed = [run("dump", *places), run("dump", "--dir", members() / "member-0")]
        assert printed[0] == printed[1]
        assert run("tail", "-n", "3", *places)[1].splitlines() == printed[0][1].splitlines()[-3:]
    for beside in (
        ["--endpoints", "a:1"],
        ["--dir", "d"],
        ["--archive-dir", "a"],
        ["--aeron-archive", "a:1"],
    ):
        status, _, err = run("dump", *places, *beside)
        assert (status, "give no other place beside it, such as --endpoints or --dir" in err) == (2, True)
