"""Tables that others change between two commits of their job and beside one: no row is lost or doubled."""

from __future__ import annotations

import json
from pathlib import Path

import deltalake
import pytest
from deltalake import DeltaTable, write_deltalake

from cluster.errors import ConfigurationError, StorageError
from jobs import delta_rs
from jobs.command import JobOptions
from jobs.delta_table import read
from jobs.keeping import keep
from jobs.tables import tables_in
from tests.jobs.conftest import rows_by, rows_of, updated_by
from tests.jobs.without_spark import IN_THREE, rows, run

pytestmark = pytest.mark.timeout(300)

NAMES = ("log", "sessions", "timers", "leadership_terms")


class Stopped(Exception):
    """The job is not to go on."""


def change(place, *, protocol=None, **metadata):
    """A commit of somebody who gives the table other properties or another schema."""
    table = DeltaTable(place)
    log = Path(place, "_delta_log")
    actions = [
        json.loads(line) for path in sorted(log.glob("*.json")) for line in path.read_text().splitlines()
    ]
    made = next(action for action in reversed(actions) if "metaData" in action)
    made["metaData"]["configuration"] |= metadata.pop("configuration", {})
    made["metaData"] |= metadata
    commit = [{"commitInfo": {"operation": "SET TBLPROPERTIES", "operationParameters": {}}}, made]
    commit += [{"protocol": protocol}] if protocol else []
    (log / f"{table.version() + 1:020}.json").write_text("\n".join(map(json.dumps, commit)))


def map_columns(place):
    fields = json.loads(DeltaTable(place).schema().to_json())["fields"]
    for number, field in enumerate(fields, 1):
        names = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": field["name"]}
        field["metadata"] |= names
    mapping = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": str(len(fields))}
    schema = json.dumps({"type": "struct", "fields": fields})
    protocol = {"minReaderVersion": 2, "minWriterVersion": 5}
    change(place, protocol=protocol, configuration=mapping, schemaString=schema)


def drop_column(place, name):
    fields = json.loads(DeltaTable(place).schema().to_json())["fields"]
    kept = [field for field in fields if field["name"] != name]
    change(place, schemaString=json.dumps({"type": "struct", "fields": kept}))


def checkpointed(place):
    table = DeltaTable(place)
    table.create_checkpoint()
    return table


def clean_up(place):
    """As Delta does once commits are older than they are kept: checkpoints have what they said."""
    version = checkpointed(place).version()
    for path in sorted(Path(place, "_delta_log").glob("*.json"))[:version]:
        path.unlink()


def vacuum(place):
    DeltaTable(place).vacuum(0, dry_run=False, enforce_retention_duration=False)


def clone(place):
    """A table of the same rows, whose commits do not say how far they go."""
    table = DeltaTable(place)
    metadata, found = table.metadata(), table.to_pyarrow_table()
    for path in Path(place, "_delta_log").iterdir():
        path.unlink()
    deltalake.DeltaTable.create(
        place,
        table.schema(),
        name=metadata.name,
        configuration=metadata.configuration,
        raise_if_key_not_exists=False,
    )
    write_deltalake(place, found, mode="append")


def add_column(place):
    DeltaTable(place).alter.add_columns([deltalake.Field("mine", "string", nullable=True)])


def of_key(place):
    return DeltaTable(place).schema().fields[0].name


BY_OTHERS = {
    "a checkpoint": checkpointed,
    "clean-up of the log": clean_up,
    "OPTIMIZE": lambda place: DeltaTable(place).optimize.compact(),
    "ZORDER": lambda place: DeltaTable(place).optimize.z_order([of_key(place)]),
    "VACUUM": vacuum,
    "OPTIMIZE, VACUUM and clean-up": lambda place: (
        DeltaTable(place).optimize.compact(),
        vacuum(place),
        clean_up(place),
    ),
    "RESTORE and OPTIMIZE": lambda place: (
        DeltaTable(place).restore(1),
        DeltaTable(place).optimize.compact(),
    ),
    "RESTORE and clean-up": lambda place: (DeltaTable(place).restore(1), clean_up(place)),
    "CLONE": clone,
    "a property": lambda place: change(place, configuration={"mine": "x"}),
    "a constraint": lambda place: DeltaTable(place).alter.add_constraint(
        {"is_there": f"{of_key(place)} > -9"}
    ),
    "a column": add_column,
}


def run_with(monkeypatch, member_dir, place, by_others, when):
    """Keep a table in three commits, with what others do before the third or at it, and start once more."""
    calls = []

    def write(original):
        def counted(*arguments):
            calls.append(1)
            if len(calls) == 3:
                if when == "between":
                    raise Stopped
                by_others(place)
            return original(*arguments)

        return counted

    with monkeypatch.context() as patched:
        for function in ("_append", "_merge"):
            patched.setattr(delta_rs, function, write(getattr(delta_rs, function)))
        try:
            run(member_dir, place, *IN_THREE)
        except Stopped:
            by_others(place)
        except StorageError as error:  # what it had looked at has gone
            assert when == "beside" and "the table cannot be written" in str(error)
    run(member_dir, place, *IN_THREE)


def check(monkeypatch, small, member_dir, tmp_path, name, by_others, when):
    run_with(monkeypatch, member_dir, str(tmp_path / name), BY_OTHERS[by_others], when)
    expected = rows(small / name)
    assert [row[: len(expected[0])] for row in rows(tmp_path / name)] == expected


@pytest.mark.slow
@pytest.mark.parametrize("when", ["between", "beside"])
@pytest.mark.parametrize("by_others", BY_OTHERS)
@pytest.mark.parametrize("name", NAMES)
def test_what_others_commit_loses_and_doubles_no_row(
    small, member_dir, tmp_path, monkeypatch, name, by_others, when
):
    check(monkeypatch, small, member_dir, tmp_path, name, by_others, when)


@pytest.mark.parametrize("name", ["log", pytest.param("sessions", marks=pytest.mark.slow)])
@pytest.mark.parametrize("by_others", ["a column", "clean-up of the log"])
def test_a_column_of_its_user_and_a_short_log_stop_no_table(
    small, member_dir, tmp_path, monkeypatch, name, by_others
):
    check(monkeypatch, small, member_dir, tmp_path, name, by_others, "between")


@pytest.mark.parametrize("when", ["between", "beside"])
def test_a_table_whose_columns_have_other_names_in_its_files_is_refused(
    member_dir, tmp_path, monkeypatch, when
):
    with pytest.raises(ConfigurationError, match=r"columnMapping.mode of table .*log is name; expected none"):
        run_with(monkeypatch, member_dir, str(tmp_path / "log"), map_columns, when)
    assert len(rows(tmp_path / "log")) == 608, "the third commit is not made"


def test_a_table_that_lacks_a_column_gets_it_unless_it_is_known_by_that(
    small, member_dir, tmp_path, monkeypatch
):
    place = str(tmp_path / "leadership_terms")
    run_with(monkeypatch, member_dir, place, lambda place: drop_column(place, "length"), "between")
    fields = {field.name: field for field in DeltaTable(place).schema().fields}
    assert fields["length"].metadata["comment"].startswith("bytes from termBaseLogPosition")
    assert len(rows(place)) == len(rows(small / "leadership_terms"))
    drop_column(place, "lastPosition")
    with pytest.raises(
        ConfigurationError, match=r"leadership_terms has no column lastPosition, so it is none of"
    ):
        run(member_dir, place)


# ---- Spark's writer

SQL = {
    "OPTIMIZE and VACUUM": (
        "OPTIMIZE {t}",
        "SET spark.databricks.delta.retentionDurationCheck.enabled = false",
        "VACUUM {t} RETAIN 0 HOURS",
    ),
    "column mapping": ("ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",),
    "a renamed column": (
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        "ALTER TABLE {t} RENAME COLUMN {key} TO renamed",
    ),
    "a column": ("ALTER TABLE {t} ADD COLUMN mine STRING",),
    "a constraint": ("ALTER TABLE {t} ADD CONSTRAINT is_there CHECK ({key} > -9)",),
    "other features": (
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')",
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
        "REORG TABLE {t} APPLY (PURGE)",
    ),
    "an earlier version": ("CREATE OR REPLACE TABLE {t} USING delta AS SELECT * FROM {t} VERSION AS OF 1",),
}


def keep_with(spark, member_dir, place, by_others, when):
    """Keep all tables in batches of 300 entries; others change each table before the third or at it."""

    def with_others(name, job):
        def update(entries, table, commit, found):
            if (commit.batch, when) == (2, "beside"):
                change_table(table)
            job.update(entries, table, commit, found)
            if (commit.batch, when) == (1, "between"):
                change_table(table)

        def change_table(table):
            for statement in SQL.get(by_others.get(name, ""), ()):
                spark.sql(statement.format(t=f"delta.`{table}`", path=table, key=job.layout.key)).collect()

        return updated_by(job, update)

    jobs = {table: with_others(job.layout.name, job) for table, job in tables_in(place).items()}
    source = {"clusterDir": member_dir, "maxEntriesPerTrigger": "300"}
    keep(spark, "tables", jobs, JobOptions.over(source, place, lambda _: None))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["log", "sessions"])
@pytest.mark.parametrize("when", ["between", "beside"])
def test_two_jobs_over_one_table_take_each_entry_in_once_or_are_refused(
    spark, member_dir, kept_rows, tmp_path, name, when
):
    """The other one has a checkpoint of its own and takes in the whole log between two batches or at one."""
    table, job = next((t, j) for t, j in tables_in(str(tmp_path)).items() if j.layout.name == name)

    def keep_on(job, checkpoint, entries):
        source = {"clusterDir": member_dir, "maxEntriesPerTrigger": str(entries)}
        keep(spark, Path(checkpoint).name, {table: job}, JobOptions.over(source, checkpoint, lambda _: None))

    def update(entries, table, commit, found):
        if (commit.batch, when) == (1, "beside"):
            keep_on(job, str(tmp_path / "other"), 500)
        job.update(entries, table, commit, found)
        if (commit.batch, when) == (0, "between"):
            keep_on(job, str(tmp_path / "other"), 500)

    with_other = updated_by(job, update)
    if when == "between":
        keep_on(with_other, str(tmp_path / "one"), 200)
        keep_on(job, str(tmp_path / "other"), 500)
        assert rows_by(read(spark, table), job.layout.key) == kept_rows[name]
        return
    for checkpoint in ("one", "one", "other"):
        with pytest.raises(
            Exception, match=r"came while its job made a commit; expected a table that one job"
        ):
            keep_on(with_other, str(tmp_path / checkpoint), 200)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("when", ["between", "beside"])
@pytest.mark.parametrize("turned", range(4))
def test_what_others_commit_to_sparks_tables_loses_and_doubles_no_row(
    spark, member_dir, kept_rows, tmp_path, turned, when
):
    """Each table has another change; four turns give each change to each table."""
    changes = ["OPTIMIZE and VACUUM", "column mapping", "a column", "a constraint", "other features"]
    by_others = {name: changes[(i + turned) % len(changes)] for i, name in enumerate(NAMES)}
    keep_with(spark, member_dir, str(tmp_path), by_others, when)
    found = rows_of(spark, str(tmp_path))
    for name in NAMES:
        assert {key: row | {"mine": None} for key, row in found[name].items()} == {
            key: row | {"mine": None} for key, row in kept_rows[name].items()
        }, (name, by_others[name])


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("when", ["between", "beside"])
@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("log", "an earlier version", "CREATE OR REPLACE TABLE AS SELECT"),
        ("sessions", "an earlier version", "CREATE OR REPLACE TABLE AS SELECT"),
        ("sessions", "a renamed column", "clusterSessionId"),
    ],
)
def test_what_others_take_from_sparks_tables_ends_their_job(
    spark, member_dir, tmp_path, name, change, said, when
):
    def refused(by_others):
        with pytest.raises(Exception, match=said):
            keep_with(spark, member_dir, str(tmp_path), by_others, when)

    if when == "beside" and change != "a renamed column":
        keep_with(spark, member_dir, str(tmp_path), {name: change}, when)  # its last look was before
    else:
        refused({name: change})
    refused({})
