"""A real node starts on the directory that our archive code wrote, replays its log, and goes on."""

from __future__ import annotations

import pytest

from cluster.reader import LogReader
from tests.archive.members import CLUSTER_ID
from tests.interop.aeron import cluster_tool, entries_as_told, real_node, told_by
from tests.interop.our_directory import write_our_member

pytestmark = pytest.mark.interop
PORT = "24100"


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_real_node_replays_every_entry_and_elects_itself_for_the_next_term(tmp_path, is_clean):
    directory = tmp_path / "member-0"
    log = write_our_member(directory, is_clean=is_clean)
    with LogReader.open(dir=str(directory)) as reader:
        ours = entries_as_told(reader.entries())
        assert reader.end_position() == log.position
    assert len(ours) > 2000
    if not is_clean:  # a real node waits until a mark file is 10 s old
        for mark in directory.glob("*/*mark*.dat"):
            with mark.open("r+b") as file:
                file.seek(16)
                file.write((-1).to_bytes(8, "little", signed=True))
    record = tmp_path / "record.jsonl"
    options = ["--base-port", PORT, "--cluster-id", str(CLUSTER_ID), "--service", "record"]
    with real_node(directory, *options, "--record", str(record)) as node:
        assert cluster_tool(directory / "cluster", "is-leader").status == 0
        node.stop()
        assert "Exception" not in node.errors()

    start, told = told_by(record)
    assert start == 0
    assert told[: len(ours)] == ours
    assert told[len(ours)][:2] == ("newLeadershipTerm", 2)

    with LogReader.open(dir=str(directory)) as reader:
        assert entries_as_told(reader.entries()) == told
