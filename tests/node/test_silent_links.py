"""A member shows that a link is silent before it closes it, which takes two heartbeat time-outs."""

import pytest

from cluster.service.echo import EchoService
from tests.node.production_loop import looped

__all__ = ["looped"]  # a fixture

QUARTER_S = 5  # of the 20 s after which a link is closed, by default


@pytest.mark.parametrize("compiled_turns", [False, True])
def test_a_link_on_which_nothing_comes_is_shown_as_down_and_told_until_it_is_heard_again(
    looped, compiled_turns
):
    cluster = looped(EchoService, members=3, seed=3, compiled_turns=compiled_turns)
    stopped = (cluster.await_leader() + 1) % 3
    cluster.settle()
    others = [member for id_, member in cluster._members.items() if id_ != stopped]

    def shown():
        return [member.life.counters.links_up[stopped].get() for member in others]

    def told(text):
        return sum(text in line for line in cluster.story)

    cluster.run(2 * QUARTER_S)
    assert shown() == [1, 1] and not told("nothing comes")  # an idle link is not a silent one
    cluster.pause(stopped)
    cluster.run(QUARTER_S - 1)
    assert shown() == [1, 1]
    cluster.run(2.5)
    assert shown() == [0, 0] and told(f"nothing comes from member {stopped}") == 2
    assert all(member.life.links.is_up(stopped) for member in others)  # what the protocol goes by
    cluster.resume(stopped)
    cluster.run(2)
    assert shown() == [1, 1] and told(f"member {stopped} is heard again") == 2


@pytest.mark.parametrize("compiled_turns", [False, True])
def test_a_link_to_a_member_that_has_started_again_is_shown_as_up_as_soon_as_it_is(looped, compiled_turns):
    cluster = looped(EchoService, members=3, seed=3, compiled_turns=compiled_turns)
    killed = (cluster.await_leader() + 1) % 3
    cluster.settle()
    others = [member for id_, member in cluster._members.items() if id_ != killed]
    cluster.kill(killed)
    cluster.run(3)
    assert [member.life.counters.links_up[killed].get() for member in others] == [0, 0]
    cluster.start(killed)
    for _ in range(40):
        cluster.run(0.05)
        are_up = [member.life.links.is_up(killed) for member in others]
        assert [member.life.counters.links_up[killed].get() for member in others] == are_up
    assert all(are_up)
