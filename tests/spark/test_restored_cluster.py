"""Checkpoints, tokens and tables of what a log was before its cluster was restored to an earlier position."""

import itertools
import json

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from cluster import ConfigurationError, LogReader, PositionToken
from cluster.errors import DataLoss
from jobs import history
from spark_connector.log import SourceLog
from spark_connector.options.cluster_options import SourceOptions
from tests.spark.logs import TERM_LENGTH, old_and_restored, open_log
from tests.spark.readers import batch, rows, stream

ALL = ReadAllAvailable()
OTHER_HISTORY = (
    r"in leadership term \d:\d+:\d+:1877313736, but the log has term 1:\d+:1800000060000:1877313736 there"
)


@pytest.fixture
def logs(tmp_path):
    """The old log, the restored one, and where they part."""
    old, restored, position = old_and_restored(tmp_path)
    yield old, restored, position
    old.stop()
    restored.stop()


def offsets_of(log, entries):
    """A query's offsets over all of ``log``, with so many entries in a batch."""
    reader = stream(log, maxEntriesPerTrigger=str(entries))
    offsets = [reader.initialOffset()]
    while (end := reader.latestOffset(offsets[-1], reader.getDefaultReadLimit())) != offsets[-1]:
        reader.partitions(offsets[-1], end)
        offsets.append(end)
    return offsets


def test_a_checkpoint_beyond_the_restored_position_is_refused_and_one_before_it_goes_on(logs):
    old, restored, position = logs
    refused = []
    for offset in offsets_of(old, 1):
        if offset["position"] <= position:
            assert stream(restored).latestOffset(offset, ALL)["position"] == restored.position
            continue
        with pytest.raises(DataLoss, match=f"{OTHER_HISTORY}.*Use a new checkpoint"):
            stream(restored).latestOffset(offset, ALL)
        refused.append(offset["term"].partition(":")[0])
    assert set(refused) == {"0", "1", "2"}, "in the term that was cut, in one of the same id, in one after it"


def test_a_query_that_runs_while_its_cluster_is_restored_is_refused_as_well(logs, monkeypatch):
    old, restored, _ = logs
    reader = stream(old)
    *_, last = offsets_of(old, 1)
    monkeypatch.setattr(reader, "_log", SourceLog(stream(restored)._options))
    with pytest.raises(DataLoss, match=OTHER_HISTORY):
        reader.latestOffset(last, ALL)


def test_a_batch_that_was_planned_before_the_restore_is_not_read_after_it(logs):
    old, restored, position = logs
    first, second = offsets_of(old, 50)
    assert first["position"] < position < second["position"]
    with pytest.raises(DataLoss, match=OTHER_HISTORY):
        stream(restored).partitions(first, second)


def test_offsets_of_releases_that_wrote_no_term_still_open(logs):
    old, restored, _ = logs
    for offset in offsets_of(old, 3):
        offset.pop("term", None)
        assert stream(restored).latestOffset(offset, ALL)["position"] == restored.position


def test_a_query_with_available_now_does_not_end_well_behind_the_checkpoint(live, monkeypatch):
    """delta-io/delta PR 1431: such a query took an end before its start, and saw nothing wrong.

    It looks once, so that it waits in that look for a member that lags.
    """
    clock = itertools.count(100.0, 3.0)
    monkeypatch.setattr("spark_connector.log.time.monotonic", lambda: next(clock))
    reported, naps = [], []
    monkeypatch.setattr("spark_connector.log.time.sleep", naps.append)
    reader = stream(live)
    monkeypatch.setattr(reader, "_report", reported.append)
    ahead = {**reader.initialOffset(), "position": live.position + 4096}
    reader.prepareForTriggerAvailableNow()
    with pytest.raises(DataLoss, match="ends at"):
        reader.latestOffset(ahead, ALL)
    assert len([nap for nap in naps if nap > 0]) > 2 and not reported

    def catch_up(seconds):
        if seconds:
            live.messages(live.session_id, [b"x" * 4096])
            live.commit()

    monkeypatch.setattr("spark_connector.log.time.sleep", catch_up)
    reader = stream(live)
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(ahead, ALL) is ahead, "the next run reads what has come meanwhile"


def test_an_option_that_names_a_place_of_the_other_history_is_refused(logs):
    old, restored, _ = logs
    *_, last = offsets_of(old, 1)
    with pytest.raises(ConfigurationError, match=f"option startingOffsets is position.*{OTHER_HISTORY}"):
        batch(restored, startingOffsets=json.dumps(last)).partitions()
    reader = batch(old, startingOffsets=json.dumps(last))
    assert rows(reader, reader.partitions()) == []


def test_a_term_whose_begin_is_purged_is_known_by_its_id_and_base(tmp_path):
    log, session_id = open_log(tmp_path)
    log.term()
    base = log.position - 96
    log.messages(session_id, [b"x" * 1000] * 300)
    end = log.commit()
    with LogReader.open(dir=str(tmp_path)) as reader:
        whole = reader.term_before(end)
    log._recording.purge_to(2 * TERM_LENGTH)
    with LogReader.open(dir=str(tmp_path)) as reader:
        assert reader.term_before(end) == f"1:{base}:?:?"
        reader.await_token(PositionToken(None, end, whole).to_text())
        with pytest.raises(ConfigurationError, match="the cluster was restored"):
            reader.await_token(PositionToken(None, end, "1:64:1:2").to_text())
    log.stop()


def test_a_token_of_the_other_history_is_refused(logs):
    old, restored, position = logs
    with LogReader.open(dir=str(old.directory)) as reader:
        token = PositionToken(None, old.position, reader.term_before(old.position))
        reader.await_token(token.to_text())
    with LogReader.open(dir=str(restored.directory)) as reader:
        with pytest.raises(ConfigurationError, match=f"the token is of position.*{OTHER_HISTORY}"):
            reader.await_token(token.to_text())
        reader.await_token(PositionToken(None, position, "0:0:?:?").to_text())


def test_a_table_of_the_other_history_is_refused_until_a_version_before_it_is_restored(logs, monkeypatch):
    old, restored, position = logs
    log = SourceLog(SourceOptions.parse({"clusterDir": str(restored.directory)}))

    def commit(number, offset):
        return history.Recent(number, "MERGE", {}, json.dumps(offset))

    first, *_, last = [offset for offset in offsets_of(old, 1) if offset["position"] >= position]
    commits = [commit(2, last), commit(1, first)]
    monkeypatch.setattr(history, "recent", lambda spark, table: commits)
    with pytest.raises(ConfigurationError, match=f"table sales stands at position.*{OTHER_HISTORY}"):
        history.check_log(None, "sales", log)
    commits.insert(0, history.Recent(3, "RESTORE", {"version": "1"}, None))
    history.check_log(None, "sales", log)
    commits[0] = history.Recent(3, "RESTORE", {"timestamp": "2026-01-01"}, None)
    history.check_log(None, "sales", log)  # its rows say how far it goes
