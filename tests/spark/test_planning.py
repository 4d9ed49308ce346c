"""Ranges of tasks: they cover the micro-batch once, on a grid that does not move."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_connector.planning import plan

MIB = 1 << 20
positions = st.integers(0, 1 << 26).map(lambda n: n * 32)


def test_an_empty_range_needs_no_task():
    assert plan(96, 96, max_bytes=MIB) == []


def test_cuts_lie_on_multiples_of_the_size_wherever_the_range_begins():
    assert plan(MIB // 2, 3 * MIB + MIB // 2, max_bytes=MIB) == [
        (MIB // 2, MIB),
        (MIB, 2 * MIB),
        (2 * MIB, 3 * MIB),
        (3 * MIB, 3 * MIB + MIB // 2),
    ]


def test_tiny_edges_join_their_neighbours():
    assert plan(MIB - 64, 3 * MIB + 64, max_bytes=MIB) == [(MIB - 64, 2 * MIB), (2 * MIB, 3 * MIB + 64)]


def test_a_range_within_one_cell_is_one_task():
    assert plan(96, 192, max_bytes=MIB) == [(96, 192)]


def test_more_tasks_are_made_by_halving_the_longest():
    assert plan(0, 1024, max_bytes=MIB, min_partitions=3) == [(0, 256), (256, 512), (512, 1024)]


@pytest.mark.conformance("P-63")
def test_there_are_never_more_tasks_than_frames_can_start():
    assert plan(0, 96, max_bytes=MIB, min_partitions=10) == [(0, 32), (32, 64), (64, 96)]


@pytest.mark.conformance("P-62")
@given(
    start=positions,
    length=positions,
    max_bytes=st.integers(1, 1 << 28),
    min_partitions=st.integers(1, 50),
    more=st.integers(0, 200),
)
def test_ranges_cover_all_once_in_order_and_within_the_wanted_number(
    start, length, max_bytes, min_partitions, more
):
    max_partitions = min_partitions + more

    ranges = plan(
        start,
        start + length,
        max_bytes=max_bytes,
        min_partitions=min_partitions,
        max_partitions=max_partitions,
    )

    assert [r[0] for r in ranges] + [start + length] == [start] + [r[1] for r in ranges]
    assert all(begin < end and begin % 32 == 0 for begin, end in ranges)
    assert min(min_partitions, length // 32) <= len(ranges) <= max_partitions


@given(start=positions, length=positions, split=st.integers(1, (1 << 26) - 1))
def test_neighbouring_batches_cut_where_one_long_batch_would(start, length, split):
    """Up to the edges, which may join: what a cut costs is paid at the same places every time."""
    middle, end = start + min(length, split * 32), start + length
    cuts = {begin for begin, _ in plan(start, end, max_bytes=1 << 24)}
    parts = plan(start, middle, max_bytes=1 << 24) + plan(middle, end, max_bytes=1 << 24)

    assert all(begin % (1 << 24) == 0 or begin in (start, middle) for begin, _ in parts)
    assert all(begin % (1 << 24) == 0 or begin == start for begin in cuts)


@pytest.mark.conformance("P-61")
def test_another_process_plans_the_same():
    arguments = "96, 10**9 - 10**9 % 32, max_bytes=10**7, min_partitions=64"
    program = f"from spark_connector.planning import plan; print(plan({arguments}))"

    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert printed.stdout.strip() == str(eval(f"plan({arguments})"))


def test_an_edge_of_a_quarter_is_a_task_of_its_own_and_a_smaller_one_is_not():
    assert plan(96, 288, max_bytes=128) == [(96, 128), (128, 256), (256, 288)]
    assert plan(128, 288, max_bytes=160) == [(128, 288)]


def test_as_many_tasks_as_there_may_be_need_no_coarser_grid():
    wanted = [(0, 128), (128, 256), (256, 384), (384, 512)]

    assert plan(0, 512, max_bytes=128, max_partitions=4) == wanted
    assert len(plan(0, 544, max_bytes=128, max_partitions=4)) < 4
