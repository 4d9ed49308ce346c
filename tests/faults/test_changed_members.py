"""A cluster of three gets five members, and three again, while clients send: nothing acknowledged is lost."""

from __future__ import annotations

import pytest

from benchmarks.load import Load
from benchmarks.real_members import RealMembers
from cluster.cli.main import main
from tests.faults.conftest import check_everything

pytestmark = pytest.mark.faults


def changed(old: RealMembers, new: RealMembers, closed: list[int]) -> None:
    """Close these members of the old cluster, and start the new ones, made of the best log among them."""
    for member_id in closed:
        assert main(["tool", "close-member", "--dir", str(old.member_dir(member_id))]) == 0
    made = ["--to", str(new.directory), "--member-ids", ",".join(map(str, new.ids))]
    assert main(["tool", "make-members", "--from", str(old.directory), *made]) == 0
    new.start()
    new.await_leader()


def test_three_become_five_and_three_again_under_load(members_of, tmp_path):
    three = members_of()
    three.start()
    with Load(three.endpoints, messages_per_s=500) as load:
        load.await_progress(three.tell)
        follower = (three.await_leader() + 1) % 3
        three.kill(follower)  # its log is not the best
        load.await_progress(three.tell)
        three.kill(*three.running)

        five = members_of(5)
        five.directory = tmp_path / "five"
        changed(three, five, three.ids)
        load.endpoints = five.endpoints
        load.await_progress(five.tell)

        lagging = [i for i in five.ids if i != five.await_leader()][:2]
        five.kill(*lagging)
        load.await_progress(five.tell)
        five.stop()
        last = members_of()
        last.directory = tmp_path / "last"
        changed(five, last, [lagging[0], *(i for i in five.ids if i not in lagging)][:3])
        load.endpoints = last.endpoints
        load.await_progress(last.tell)

        # Who was closed starts no more.
        three.spawn(0)
        assert three.processes[0].wait(60) == 2
        assert "this member was closed" in (tmp_path / "member-0.err").read_text()
        check_everything(last, load)
