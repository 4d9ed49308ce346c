"""Exported files, and a log whose head is purged, read with them: the same entries as before the purge."""

import json
import traceback
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from cluster.errors import ConfigurationError, DataLoss, LogDamaged, LogPurged
from cluster.log.entry_filter import EntryFilter
from cluster.reader import LogReader
from cluster.reader import exported_log as exporting
from cluster.reader.exported_log import METADATA_KEY, ExportedLog
from cluster.reader.file_systems import file_system_of, masked, written_aside
from cluster.reader.joined_reader import JoinedReader
from tests.reader.object_store import object_store
from tests.reader.scripted import FakeMember, open_reader
from tests.spark.logs import TERM_LENGTH, old_and_restored, open_log

START = 2 * TERM_LENGTH  # where the log begins once it is purged


def template(number):
    return b"\x00\x00" + number.to_bytes(2, "little") + b"\x00" * 4


@pytest.fixture
def live(tmp_path):
    """A log of four term buffers with two sessions, and messages of several frames."""
    log, first = open_log(tmp_path / "member-0")
    second = log.open_session()
    for number in range(400):
        payload = template(number % 3) + b"%3d" % number * (700 if number % 50 == 0 else 150)
        log.messages(second if number % 5 == 0 else first, [payload])
    log.commit()
    log.sessions = first, second
    yield log
    log.stop()


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "exported")


def reader(log, export_dir=None, **options):
    opened = LogReader.open(dir=str(log.directory), **options)
    return opened if export_dir is None else JoinedReader(opened, export_dir)


def export(log, folder):
    with reader(log) as opened:
        return list(ExportedLog(folder).append(opened))


def entries(log, begin=None, end=None, **options):
    with reader(log, **options) as opened:
        return list(opened.entries(begin, end))


def purge(log):
    assert log._recording.purge_to(START) == START


def test_each_run_adds_what_was_committed_since_the_last_one(live, folder):
    (first,) = export(live, folder)
    live.messages(live.sessions[0], [b"in doubt"])
    assert export(live, folder) == [], "only what is committed"
    live.commit()
    (second,) = export(live, folder)

    assert [first.begin, first.end, second.end] == [0, second.begin, live.position]
    assert sorted(path.name for path in Path(folder).iterdir()) == [
        f"{one.begin:020}-{one.end:020}.parquet" for one in (first, second)
    ]
    rows = [row for one in (first, second) for row in pq.read_table(one.path).to_pylist()]
    assert [{k: v for k, v in row.items() if v is not None} for row in rows] == entries(live)


def test_files_and_row_groups_are_no_larger_than_they_should_and_cut_between_entries(
    live, folder, monkeypatch
):
    monkeypatch.setattr(exporting, "FILE_BYTES", 50_000)
    monkeypatch.setattr(exporting, "ROW_GROUP_BYTES", 1)
    files = export(live, folder)

    assert len(files) > 4 and all(one.end == following.begin for one, following in pairwise(files))
    assert {one.end for one in files[:-1]} <= {entry["position"] for entry in entries(live)}
    before = entries(live)
    purge(live)
    assert entries(live, export_dir=folder) == before


def test_of_two_exports_at_once_one_is_refused_and_what_is_published_is_whole(live, folder, monkeypatch):
    """awslabs/aws-build-accumulator PR 36: two that shared a temporary file published a torn one."""
    monkeypatch.setattr(exporting, "ROW_GROUP_BYTES", 1)
    write, first, second = exporting._write_rows, ExportedLog(folder), ExportedLog(folder)
    is_begun = []

    def with_another_in_the_middle(out, about, batches):
        def parted():
            yield next(batches)
            if not is_begun:
                is_begun.append(True)
                with reader(live) as opened:
                    assert len(list(second.append(opened))) == 1
            yield from batches

        write(out, about, parted())

    monkeypatch.setattr(exporting, "_write_rows", with_another_in_the_middle)
    with reader(live) as opened, pytest.raises(ConfigurationError, match="another export writes there"):
        list(first.append(opened))
    (path,) = Path(folder).iterdir()
    assert pq.read_table(path).num_rows == len(entries(live))


def test_what_a_killed_export_has_left_goes_with_the_next_one_and_what_another_one_writes_stays(live, folder):
    Path(folder).mkdir()
    name = f"{0:020}-{10:020}.parquet"
    left, others = Path(folder, f"{name}.0a1b2c3d.tmp"), Path(folder, "x.0a1b2c3d.tmp")
    for path in (left, others):
        path.write_bytes(b"half")
    file_system, path = file_system_of(f"{folder}/{0:020}-{20:020}.parquet")
    with written_aside(file_system, path) as running:
        (file,) = export(live, folder)
        assert {path.name for path in Path(folder).iterdir()} == {
            Path(file.path).name,
            Path(running).name,
            others.name,
        }


@pytest.mark.parametrize("is_folder", [False, True])
def test_of_one_file_or_folder_too_what_was_left_goes(tmp_path, is_folder):
    target = tmp_path / "log.parquet"
    left = tmp_path / "log.parquet.ffffffff.tmp"
    left.mkdir() if is_folder else left.write_bytes(b"half")
    file_system, path = file_system_of(str(target))
    with written_aside(file_system, path, is_folder=is_folder) as aside:
        assert {path.name for path in tmp_path.iterdir()} == {Path(aside).name}
    assert [path.name for path in tmp_path.iterdir()] == ["log.parquet"]


@pytest.fixture(params=["a path", "a URI", "an object store"])
def where(request, folder):
    """The same folder here, and one that is no folder of any host."""
    if request.param == "an object store":
        with object_store() as store:
            yield store.uri("logs/exported")
        assert {name for name in store.objects if name.endswith(".tmp")} == set()
        assert not Path(folder).exists()
        return
    yield folder if request.param == "a path" else Path(folder).as_uri()


def test_a_purged_head_goes_on_from_the_files_as_one_log(live, where):
    before = entries(live)
    begins = [entry["position"] for entry in before]
    (first,) = export(live, where)
    live.lines(live.sessions[0], 0, 20)
    (second,) = export(live, where)
    assert (first.end, second.end) == (second.begin, live.position), "another run goes on"
    purge(live)

    found = entries(live, export_dir=where)
    assert found[: len(before)] == before and len(found) == len(before) + 20
    for begin, end in ((begins[7], begins[8]), (begins[3], START + 1), (0, START), (START, None)):
        expected = [one for one in found if begin <= one["position"] < (end or live.position)]
        assert entries(live, begin, end, export_dir=where) == expected
    with reader(live, export_dir=where) as opened:
        assert (opened.start_position, opened.log.start_position) == (0, START)
        followed = [row for batch in opened.follow(0, live.position) for row in batch.to_pylist()]
        assert [row["position"] for row in followed] == [one["position"] for one in found]
        with pytest.raises(LogPurged):
            next(opened.blocks(0))


@pytest.mark.parametrize(
    "given",
    [
        {"entry_types": ("SESSION_OPEN", "NEW_LEADERSHIP_TERM")},
        {"sessions": (2,)},
        {"template_ids": (1, 2)},
        {"sessions": (1,), "template_ids": (0,), "entry_types": ("SESSION_MESSAGE", "TIMER")},
    ],
)
def test_a_filter_leaves_of_files_what_it_leaves_of_the_log(live, folder, given):
    wanted = EntryFilter(**given)
    before = entries(live, entry_filter=wanted)
    export(live, folder)
    purge(live)

    assert 0 < len(before) < 400
    assert entries(live, export_dir=folder, entry_filter=wanted) == before


def test_places_within_an_entry_are_found_in_files_too(live, folder):
    ends = {entry["position"]: entry["endPosition"] for entry in entries(live)}
    export(live, folder)
    purge(live)

    with reader(live, export_dir=folder) as opened:
        for begin, end in list(ends.items())[::20]:
            assert opened.boundary_at_or_after(begin) == begin
            assert opened.boundary_at_or_after(begin + 32) == end
            assert opened.boundary_at_or_after(end) == end


def test_what_is_purged_while_it_is_read_goes_on_from_files_exported_meanwhile(tmp_path):
    members = [FakeMember(0), FakeMember(1)]
    folder = str(tmp_path / "exported")
    list(ExportedLog(folder).append(open_reader([FakeMember(0, committed=640)])))
    joined = JoinedReader(open_reader(members), folder)
    reading = joined.batches(0, 6400, columns=("position",), is_committed=True)
    got = [position for _ in range(3) for position in next(reading).column(0).to_pylist()]
    list(ExportedLog(folder).append(open_reader(members)))
    members[0].blocks_until_break = 0
    for member in members:
        member.start = 3200

    got += [position for batch in reading for position in batch.column(0).to_pylist()]
    assert got == list(range(0, 6400, 64))
    assert joined.boundary_at_or_after(100) == 128


def test_an_entry_is_found_though_it_was_purged_since_the_log_was_last_looked_at(tmp_path):
    member, folder = FakeMember(0), str(tmp_path / "exported")
    list(ExportedLog(folder).append(open_reader([member])))
    joined = JoinedReader(open_reader([member]), folder)
    member.start = 3200

    assert joined.log.start_position == 0
    assert joined.boundary_at_or_after(100) == 128


def test_a_gap_between_files_and_log_is_a_loss_that_says_who_has_what(tmp_path):
    member, folder = FakeMember(0, committed=640), str(tmp_path / "exported")
    list(ExportedLog(folder).append(open_reader([member])))
    member.start, member.committed = 1280, 6400
    joined = JoinedReader(open_reader([member]), folder)

    assert (joined.start_position, joined.retained_from(0), joined.retained_from(1344)) == (0, 1280, 1344)
    assert len(list(joined.batches(0, 640))) == 1
    with pytest.raises(LogPurged, match=f"begins at 1280 now, and {folder} has it only from 0 to 640") as gap:
        list(joined.batches(0, 1344))
    assert gap.value.start_position == 1280
    with pytest.raises(LogPurged, match=r"end at position 640, and .* is purged up to 1280"):
        list(ExportedLog(folder).append(open_reader([member])))


def test_what_is_retained_begins_with_the_oldest_file_that_joins_on(tmp_path):
    member, folder = FakeMember(0, committed=1280), str(tmp_path / "exported")
    member.start = 640
    list(ExportedLog(folder).append(open_reader([member])))
    member.start, member.committed = 1280, 6400
    joined = JoinedReader(open_reader([member]), folder)

    assert joined.start_position == 640
    assert [joined.retained_from(position) for position in (0, 640, 704, 1280)] == [640, 640, 704, 1280]
    member.start = 0  # a member that has all of it
    assert JoinedReader(open_reader([member]), folder).retained_from(0) == 0


@pytest.mark.conformance("S-300")
def test_files_of_another_cluster_are_refused_to_readers_and_writers(live, folder, tmp_path):
    other, _ = open_log(tmp_path / "other", time=1_900_000_000_000)
    try:
        export(live, folder)
        for ask in (lambda: reader(other, export_dir=folder), lambda: export(other, folder)):
            with pytest.raises(ConfigurationError, match=r"0:1800000000000:.*, expected those of 0:19000000"):
                ask()
    finally:
        other.stop()


def test_files_of_before_a_restore_are_refused_to_readers_and_writers(folder, tmp_path):
    old, restored, _ = old_and_restored(tmp_path)
    export(old, folder)
    for ask in (lambda: reader(restored, export_dir=folder), lambda: export(restored, folder)):
        with pytest.raises(ConfigurationError, match=r"in leadership term 2:.* the log has term 1:"):
            ask()
    assert export(old, folder) == []
    old.stop()
    restored.stop()


@pytest.mark.conformance("S-300")
def test_files_that_do_not_join_on_are_refused_with_their_names(live, folder):
    (file,) = export(live, folder)
    for begin, end, what in ((file.end + 32, file.end + 64, "a gap"), (96, file.end + 64, "an overlap")):
        more = Path(folder, f"{begin:020}-{end:020}.parquet")
        more.touch()
        with pytest.raises(
            DataLoss, match=rf"there is {what} between .*{file.end}.parquet.*, and .*{end}.parq"
        ):
            reader(live, export_dir=folder)
        more.unlink()
    Path(folder, "notes.txt").touch()
    Path(folder, f"{0:020}-{10:020}.parquet.tmp").touch()
    assert ExportedLog(folder).files == [file]


def test_a_file_that_is_not_what_its_name_says_is_damaged(live, folder):
    (file,) = export(live, folder)
    purge(live)
    table = pq.read_table(file.path)
    about = json.loads(table.schema.metadata[METADATA_KEY])
    assert about == {
        "cluster": "0:1800000000000:1877313736",
        "begin": 0,
        "end": file.end,
        "term": "0:0:1800000000000:1877313736",
        "termLength": TERM_LENGTH,
        "timeUnit": "MILLIS",
    }
    text = json.dumps(about | {"begin": 96}).encode()
    for metadata, what in (
        (None, "key cluster.log is missing"),
        ({METADATA_KEY: text}, "the log from 96 to"),
    ):
        pq.write_table(table.replace_schema_metadata(metadata), file.path)
        with pytest.raises(LogDamaged, match=what):
            reader(live, export_dir=folder)
    Path(file.path).write_bytes(b"no Parquet")
    with pytest.raises(LogDamaged, match="it is no Parquet file"):
        reader(live, export_dir=folder)


def test_a_folder_that_cannot_be_is_refused(live, tmp_path):
    (tmp_path / "file").touch()
    for where, says in (
        (str(tmp_path / "file"), "is a file; expected a folder"),
        ("s4://bucket/log", "s4://bucket/log cannot be opened; expected a path .* s3, gs"),
        (str(tmp_path / "empty"), "empty has no file of a log; expected some of cluster log export --append"),
    ):
        with pytest.raises(ConfigurationError, match=says):
            reader(live, export_dir=where)
    with (
        object_store() as store,
        pytest.raises(ConfigurationError, match=r"s3://\*\*\*@bucket/log\?.* cannot be opened: "),
    ):
        store.is_refusing = True
        reader(live, export_dir=store.uri("log"))


@pytest.mark.parametrize(
    "where, shown",
    [
        ("s3://key:secret@bucket/log", "s3://***@bucket/log"),
        ("s3://key:se/cr@et@bucket/log?region=here", "s3://***@bucket/log?region=here"),
        ("abfs://:secret@account/log", "abfs://***@account/log"),
        ("s3://bucket/log?secret_key=x&region=here&sas_token=y", "s3://bucket/log?secret_key=***&region=here"
         "&sas_token=***"),
        ("s3://bucket/a@b", "s3://bucket/a@b"),
        ("/home/key:secret@here", "/home/key:secret@here"),
        ("hdfs://host:9000/log", "hdfs://host:9000/log"),
    ],
)  # fmt: skip
def test_credentials_in_a_uri_are_not_shown(where, shown):
    assert masked(where) == shown


@pytest.mark.parametrize(
    "where", ["s3://key:secret@b c/log", "s5://key:secret@bucket/log", "s3://key:se/secret@bucket/log"]
)
def test_a_uri_that_cannot_be_opened_is_told_in_a_line_without_its_credentials(where):
    with pytest.raises(ConfigurationError, match=r"://\*\*\*@.* cannot be opened") as refused:
        ExportedLog(where)

    shown = "".join(traceback.format_exception(refused.value))
    assert "secret" not in shown and len(str(refused.value).splitlines()) <= 2
