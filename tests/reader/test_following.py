"""Who follows a log: what a look that finds nothing new does not do."""

import pytest

from cluster.reader import LogReader
from tests.archive.logs import a_log
from tests.archive.members import write_member


class Enough(Exception):
    """So often it has waited."""


def test_a_damage_at_the_end_is_reported_once_and_so_is_one_before_it(tmp_path):
    log = a_log(100)
    write_member(tmp_path, log)
    damaged = [log.entries[49][0], log.entries[-1][0]]
    with (tmp_path / "archive" / "0-0.rec").open("r+b") as segment:
        for begin in damaged:
            segment.seek(begin + 8)
            segment.write(b"\xde\xad\xbe\xef")
    told, found, waits = [], [], []

    def wait(seconds):
        waits.append(seconds)
        if len(waits) == 5:
            raise Enough

    with LogReader.open(dir=str(tmp_path)) as reader, pytest.raises(Enough):
        for batch in reader.follow(columns=["position"], wait=wait, on_damage=told.append):
            found += batch.column(0).to_pylist()
    assert found == [begin for begin, _ in log.entries if begin not in damaged]
    assert [damage.offset for damage in told] == damaged
