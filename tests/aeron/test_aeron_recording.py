"""Any recording of an Aeron Archive: fragments as they are, a cluster's log by its entries."""

from __future__ import annotations

import numpy as np
import pytest

from cluster.errors import ConfigurationError, LogPurged
from cluster.log.entry_filter import EntryFilter
from cluster.reader import LogReader
from tests.aeron.recorded import STREAM, TERM_LENGTH, recorded
from tests.aeron.scripted_aeron import Script, open_recording
from tests.reader import real


@pytest.fixture(scope="module")
def fragments():
    return recorded()


@pytest.fixture
def script(fragments):
    return Script(0, fragments[0], TERM_LENGTH, stream_id=STREAM)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return real.a_copy(tmp_path_factory.mktemp("real"))


@pytest.fixture
def log(directory):
    """A cluster's log in an archive, and its entries."""
    with LogReader.open(dir=str(directory)) as reader:
        data = np.concatenate([block for _, block in reader.blocks()])
        return Script(0, data, reader.term_length), list(reader.entries()), reader.identity


def test_what_is_no_cluster_s_log_is_read_fragment_by_fragment(monkeypatch, fragments, script):
    with open_recording(monkeypatch, [script]) as reader:
        assert list(reader.entries()) == fragments[1]
        table = reader.to_arrow_reader().read_all()
        assert (table.num_rows, table.column_names) == (len(fragments[1]), list(fragments[1][0]))
        assert reader.identity == (0, 70, 9), "its id, when it began and in which term"


def test_its_fragments_have_null_in_the_columns_of_entries(monkeypatch, fragments, script):
    with open_recording(monkeypatch, [script]) as reader:
        (batch, *_) = reader.batches(columns=("entryType", "payload", "position"), rows_per_batch=3)
        first = [{name: row.get(name) for name in batch.schema.names} for row in fragments[1][:3]]
    assert batch.to_pylist() == first


@pytest.mark.parametrize("max_bytes", [1, 4096, 1 << 20])
def test_any_range_gives_the_fragments_that_begin_in_it(monkeypatch, fragments, script, max_bytes):
    _, rows = fragments
    with open_recording(monkeypatch, [script]) as reader:
        for first, last in ((0, 0), (3, 9), (len(rows) // 2, len(rows) - 1)):
            begin, end = rows[first]["position"], rows[last]["position"] + 1
            batches = reader.batches(
                begin, end, max_bytes=max_bytes, is_committed=True, columns=("position",)
            )
            found = [position for batch in batches for position in batch.column(0).to_pylist()]
            assert found == [row["position"] for row in rows[first : last + 1]]
        assert reader.boundary_at_or_after(rows[7]["position"] + 1) == rows[8]["position"]


def test_a_live_recording_is_followed_to_where_it_is_recorded(monkeypatch, fragments, script):
    _, rows = fragments
    half = rows[len(rows) // 2]["endPosition"]
    script.commit = half
    with open_recording(monkeypatch, [script]) as reader:
        assert (reader.is_live, reader.commit_position(), reader.end_position()) == (True, half, half)
        followed = reader.entries(follow=True, wait=lambda _: setattr(script, "commit", len(script.data)))
        assert [next(followed) for _ in rows] == rows


def test_a_stopped_one_ends_at_its_stop_position(monkeypatch, fragments, script):
    script.commit, script.is_stopped = fragments[1][40]["endPosition"], True
    with open_recording(monkeypatch, [script]) as reader:
        assert not reader.is_live
        assert list(reader.entries()) == fragments[1][:41]
        assert reader.commit_position() == script.commit


def test_a_recording_without_a_frame_is_empty_and_has_no_identity_yet(monkeypatch, script):
    script.commit = script.start = TERM_LENGTH
    with open_recording(monkeypatch, [script]) as reader:
        assert (list(reader.entries()), reader.identity) == ([], None)
        script.commit = len(script.data)
        assert reader.identity == (0, 70, 9)
        assert next(reader.entries())["position"] == TERM_LENGTH


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_cluster_s_log_is_read_by_its_entries_and_has_the_cluster_s_identity(monkeypatch, log, is_stopped):
    script, entries, identity = log
    script.is_stopped = is_stopped
    with open_recording(monkeypatch, [script], cluster_id=identity.cluster_id) as reader:
        assert list(reader.entries()) == entries
        assert [reader.identity, reader.commit_position()] == [identity, entries[-1]["endPosition"]]
        assert list(reader.entries(entries[9]["position"], entries[30]["position"])) == entries[9:30]


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_log_that_is_recorded_into_a_message_ends_before_it(monkeypatch, log, is_stopped):
    script, entries, _ = log
    cut = next(i for i, each in enumerate(entries) if each["endPosition"] - each["position"] > 2 * 1408)
    script.commit = entries[cut]["position"] + 1408
    script.is_stopped = is_stopped
    with open_recording(monkeypatch, [script]) as reader:
        assert reader.end_position() == reader.commit_position() == entries[cut]["position"]
        assert list(reader.entries()) == entries[:cut]


def test_what_breaks_off_is_asked_for_again(monkeypatch, fragments, script):
    script.breaks_at, script.loses_driver_at = fragments[1][20]["position"], fragments[1][50]["position"]
    with open_recording(monkeypatch, [script]) as reader:
        assert list(reader.entries()) == fragments[1]


def test_what_was_purged_is_said_with_where_the_recording_begins(monkeypatch, script):
    with open_recording(monkeypatch, [script]) as reader:
        script.start = TERM_LENGTH
        with pytest.raises(LogPurged) as purged:
            list(reader.entries(0))
        assert purged.value.start_position == reader.earliest_position() == TERM_LENGTH


@pytest.mark.parametrize("recording_id", [None, 5])
def test_without_one_of_its_recordings_an_archive_s_are_listed(monkeypatch, script, recording_id):
    other = Script(3, script.data, TERM_LENGTH, stream_id=1002)
    with pytest.raises(ConfigurationError) as error:
        open_recording(monkeypatch, [script, other], recording_id)
    assert "has 0: stream 1001 of aeron:ipc; 3: stream 1002 of aeron:ipc" in str(error.value)


def test_fragments_are_not_chosen_by_what_entries_have(monkeypatch, script):
    reader = open_recording(monkeypatch, [script], entry_filter=EntryFilter(("TIMER",)))
    with reader, pytest.raises(ConfigurationError, match="recording 0 is no log of a cluster"):
        list(reader.entries())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"aeron_archive": "a:1", "dir": "d"}, "one of them"),
        ({"aeron_archive": "a:1", "consensus_endpoints": "a:2"}, "one of them"),
        ({"recording_id": 1, "dir": "d"}, "recording_id goes with aeron_archive"),
        ({"aeron_archive": "a:1,b:1", "recording_id": 1}, "expected one, by its control endpoint"),
    ],
)
def test_an_archive_is_named_alone(options, says):
    with pytest.raises(ConfigurationError, match=says):
        LogReader.open(**options)
