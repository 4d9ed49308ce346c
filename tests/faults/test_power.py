"""Power cuts: all that was not synced is gone, pages, names and whole files, on one member or on all."""

from __future__ import annotations

import pytest

from benchmarks.load import Load
from tests.faults.conftest import check_everything
from tests.faults.synced_disk import restore

pytestmark = pytest.mark.faults


@pytest.fixture
def powered(members_of):
    """Members whose directories can be put back to what they had synced."""

    def make(count: int = 3, **keys: str):
        # Small segments, for the image is copied at each start.
        small = {"log_term_length": "1m", "archive_segment_file_length": "4m"}
        members = members_of(count, keys={**small, **keys})
        members.command = ["-m", "tests.faults.synced_disk"]
        return members

    return make


def cut_power(members, *member_ids: int) -> None:
    members.kill(*member_ids)
    for member_id in member_ids:
        restore(members.member_dir(member_id))
    members.start(*member_ids)


def test_a_power_cut_of_all_members_costs_nothing_that_was_acknowledged(powered):
    members = powered()
    members.start()
    with Load(members.tcp, messages_per_s=3_000) as load:
        for _ in range(2):
            load.await_progress(members.tell)
            load.await_seconds(1)
            cut_power(members, *members.ids)
        load.await_progress(members.tell)
        members.await_level()
        check_everything(members, load)


def test_a_power_cut_of_the_leader_and_then_of_a_follower_costs_nothing_that_was_acknowledged(powered):
    members = powered()
    members.start()
    with Load(members.tcp, messages_per_s=3_000) as load:
        for role in ("leader", "follower"):
            load.await_progress(members.tell)
            leader = members.await_leader()
            cut_power(members, leader if role == "leader" else (leader + 1) % 3)
            load.await_progress(members.tell)
            members.await_level()
        check_everything(members, load)


def test_one_member_alone_acknowledges_nothing_that_a_power_cut_takes(powered):
    """With a log of small segments, so that the power goes while one follows the other."""
    members = powered(1, log_term_length="64k", archive_segment_file_length="64k")
    members.start()
    with Load(members.tcp, messages_per_s=3_000) as load:
        for _ in range(3):
            load.await_progress(members.tell)
            load.await_seconds(0.5)
            cut_power(members, 0)
        load.await_progress(members.tell)
        check_everything(members, load)
