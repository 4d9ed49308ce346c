"""All tables in one query, and what their commits say: kept, stopped between two, read as of before."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from cluster import ConfigurationError, DataLoss, parse_token
from jobs import as_of
from jobs.delta_table import delta_table, latest_version, read
from jobs.history import versions
from jobs.tables import tables_in
from jobs.timers import TimersOfSnapshots
from tests.jobs import expected
from tests.jobs.conftest import CUT, keep_all, naive_rows, rows_by, rows_of, updated_by
from tests.spark.readers import snapshot_rows

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "tables.md").read_text()

pytestmark = pytest.mark.timeout(600)  # queries that start, on a machine that may be busy


def test_the_log_table_holds_every_entry_once(kept_rows, decoded):
    assert sorted(kept_rows["log"]) == [entry["position"] for entry in decoded]
    for entry in decoded:
        row = kept_rows["log"][entry["position"]]
        for column in ("endPosition", "entryType", "clusterTime", "leadershipTermId", "clusterSessionId"):
            assert row[column] == entry.get(column)
        if entry["payload"] is not None:
            assert len(row["payload"]) == entry["payloadLength"]


def test_the_other_tables_are_what_a_plain_reading_of_the_log_makes(kept_rows, decoded, member_dir):
    of_snapshots = TimersOfSnapshots({"clusterDir": member_dir})(True, decoded[-1]["endPosition"])
    assert kept_rows["sessions"] == naive_rows(expected.sessions(decoded))
    assert kept_rows["timers"] == naive_rows(expected.timers([*decoded, *of_snapshots]))
    assert kept_rows["leadership_terms"] == naive_rows(expected.terms(decoded))


@pytest.mark.slow
@pytest.mark.conformance("P-104")
def test_a_crash_between_two_tables_of_a_batch_leaves_all_of_them_right(
    spark, member_dir, tmp_path, kept_rows
):
    place = str(tmp_path)
    tables = tables_in(place)
    batches = []

    def dying(entries, table, commit, found):
        batches.append(commit.batch)
        if commit.batch == 1:
            raise MemoryError("the driver is killed here")
        tables[table].update(entries, table, commit, found)

    of_timers = next(table for table, job in tables.items() if job.layout.name == "timers")
    doomed = tables | {of_timers: updated_by(tables[of_timers], dying)}
    with pytest.raises(Exception, match="the driver is killed here"):
        keep_all(spark, member_dir, place, doomed)
    assert batches == [0, 1]
    goes_to = {table: max(versions(spark, table)).position for table in tables}
    assert len(set(goes_to.values())) == 2, "two tables have the batch, and two do not"

    keep_all(spark, member_dir, place)

    assert rows_of(spark, place) == kept_rows


def test_a_commit_says_how_far_in_the_log_it_goes(spark, kept, decoded):
    ends = [decoded[CUT - 1]["endPosition"], decoded[-1]["endPosition"]]
    for table in tables_in(kept):
        assert [version.position for version in versions(spark, table)] == ends
        newest = delta_table(spark, table).history(1).first()
        token = parse_token(newest.userMetadata)
        assert (token.position, token.cluster.count(":")) == (ends[-1], 2)


@pytest.mark.conformance("P-108")
@pytest.mark.parametrize("batches", [1, 2])
def test_a_table_as_of_a_position_is_what_the_log_up_to_there_makes(spark, kept, decoded, batches):
    before = decoded[: CUT * batches]
    for position in (before[-1]["endPosition"], before[-1]["endPosition"] + 32):
        assert as_of(spark, f"{kept}/log", position).count() == len(before)
        found = rows_by(as_of(spark, f"{kept}/sessions", position), "clusterSessionId")
        assert found == naive_rows(expected.sessions(before))


@pytest.mark.conformance("P-108")
def test_tables_as_of_a_snapshot_agree_with_what_the_cluster_wrote_into_it(spark, kept, member_dir, decoded):
    """A real Aeron Cluster's: its sessions, and how many messages and timers its service had been given."""
    snapshot = {row["recordType"]: row for row in snapshot_rows(clusterDir=member_dir)}
    at = snapshot["CONSENSUS_MODULE"]["logPosition"]
    before = [entry for entry in decoded if entry["endPosition"] <= at]
    assert len(before) == CUT, "where a batch of the tables has ended"

    then = rows_by(as_of(spark, f"{kept}/sessions", at), "clusterSessionId")
    (still_open,) = (row for row in then.values() if row["state"] == "OPEN")
    ends = {entry["position"]: entry["endPosition"] for entry in before}
    of_snapshot = snapshot["CLUSTER_SESSION"]
    assert still_open["clusterSessionId"] == of_snapshot["clusterSessionId"]
    assert ends[still_open["openPosition"]] == of_snapshot["openedLogPosition"]
    assert max(then) + 1 == snapshot["CONSENSUS_MODULE"]["nextSessionId"]
    given = as_of(spark, f"{kept}/log", at).where("entryType IN ('SESSION_MESSAGE', 'TIMER')")
    assert given.count() == int.from_bytes(snapshot["SERVICE_STATE"]["record"], "little") > 400
    (now,) = read(spark, f"{kept}/sessions").where("clusterSessionId = 2").collect()
    assert now["state"] == "CLOSED", "the table itself has gone on"


def test_a_table_as_of_a_token_is_of_the_tokens_cluster(spark, kept):
    token = delta_table(spark, f"{kept}/log").history(1).first().userMetadata
    assert as_of(spark, f"{kept}/log", token).count() == 761
    with pytest.raises(ConfigurationError, match=r"the token is of cluster 7:1:1, table .*log of 0:"):
        as_of(spark, f"{kept}/log", '{"v": 2, "cluster": "7:1:1", "position": 96}')
    with pytest.raises(ConfigurationError, match="is no position token"):
        as_of(spark, f"{kept}/log", "yesterday")


def test_a_position_before_the_first_commit_is_an_error_that_names_it(spark, kept, decoded, tmp_path):
    first = decoded[CUT - 1]["endPosition"]
    with pytest.raises(DataLoss, match=rf"as of position 96: the first one left goes to {first}"):
        as_of(spark, f"{kept}/timers", 96)
    spark.range(1).write.format("delta").save(str(tmp_path / "other"))
    with pytest.raises(DataLoss, match="none says how far it goes"):
        as_of(spark, str(tmp_path / "other"), 96)


@pytest.mark.slow
def test_commits_of_others_do_not_count_as_versions_of_the_log(spark, place):
    table = f"{place}/sessions"
    before, latest = versions(spark, table), latest_version(spark, table)
    delta_table(spark, table).optimize().executeCompaction()
    assert latest_version(spark, table) == latest + 1
    assert versions(spark, table) == before


def test_the_examples_of_the_page_run_as_they_stand(spark, kept, member_dir, capsys, decoded, tmp_path):
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 5
    there = {"spark": spark}
    for block in blocks:
        block = block.replace("/data/all", kept).replace("c1/member-0", member_dir)
        exec(re.sub(r'"((?:delta|checkpoints)/)', rf'"{tmp_path}/\1', block), there)
    printed = capsys.readouterr().out
    assert "bytes of their payloads" in printed
    counted = Counter(entry["entryType"] for entry in decoded)
    assert f"\n{counted['SESSION_OPEN']} sessions were opened\n" in printed
    assert dict(re.findall(r"^│ ([A-Z_]+) +│ +(\d+) │$", printed, re.MULTILINE)) == {
        name: str(count) for name, count in counted.items()
    }
    assert printed.endswith(f"\n{counted['TIMER']}\n")
    assert there["changes"].isStreaming and "_change_type" in there["changes"].columns
    assert there["then"].count() == read(spark, f"{kept}/sessions").count()
