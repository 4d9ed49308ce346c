"""A reader that is called wrongly names the argument, its value and what was expected."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cluster import LogReader
from cluster.errors import ConfigurationError
from tests.reader.real import members


@pytest.fixture
def directory() -> Path:
    return members() / "member-1"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"from_position": -32}, "from_position is -32"),
        ({"from_position": 33}, "from_position is 33, expected the position or endPosition of an entry"),
        ({"from_position": "0"}, "from_position is '0', expected a whole number"),
        ({"to_position": 1.5}, "to_position is 1.5, expected a whole number"),
        ({"columns": "position"}, "columns is 'position', expected names in a list"),
        ({"columns": ["position", "nope"]}, "columns: 'nope' is unknown; expected some of position, endPos"),
        ({"entry_types": "TIMER"}, "entry_types is 'TIMER', expected names in a list"),
        ({"entry_types": ["Timer"]}, "entry_types: 'Timer' is unknown; expected some of SESSION_MESSAGE"),
    ],
)
def test_a_range_that_is_none_is_refused_by_name(directory, arguments, named):
    with LogReader.open(dir=directory) as reader:
        for read in (reader.batches, reader.follow, reader.entries):
            with pytest.raises(ConfigurationError, match=named):
                next(iter(read(**arguments)))


@pytest.mark.parametrize("rows", [0, -1, 1.5])
def test_a_batch_of_no_rows_is_refused_and_is_no_damage(directory, rows):
    with LogReader.open(dir=directory) as reader, pytest.raises(ConfigurationError, match="rows_per_batch"):
        next(reader.batches(rows_per_batch=rows))


def test_a_position_within_an_entry_is_no_damage_and_the_next_entry_is_named(directory):
    with LogReader.open(dir=directory) as reader:
        first, second, *_ = [entry["position"] for entry in reader.entries(columns=["position"])]
        for within in range(first + 32, second, 32):
            with pytest.raises(ConfigurationError, match=f"is {within}: .* the next one begins at {second}"):
                next(reader.batches(within))
        assert next(reader.entries(np.int64(second)))["position"] == second


@pytest.mark.parametrize(
    "places",
    [{"dir": ""}, {"dir": []}, {"dir": 5}, {"archive_dir": [5]}, {"dir": [None]}, {"cluster_dir": ""}],
)
def test_a_directory_that_is_no_path_is_refused_by_name(places):
    (name,) = places
    with pytest.raises(ConfigurationError, match=f"{name} is "):
        LogReader.open(**places)
