"""Which members are asked first, and who is asked when they fail; members are played."""

import pytest

from cluster.errors import ConfigurationError
from cluster.protocol.enums import Role
from cluster.transport.preference import ANY, FOLLOWER, LEADER, in_order, parse_preference
from tests.reader.scripted import FakeMember, open_reader


@pytest.fixture
def members():
    return [FakeMember(0), FakeMember(1, Role.LEADER), FakeMember(2)]


@pytest.mark.parametrize(
    "preference, orders",
    [
        (FOLLOWER, [[0, 2, 1], [2, 0, 1], [0, 2, 1]]),
        (LEADER, [[1, 0, 2], [1, 2, 0], [1, 0, 2]]),
        (ANY, [[0, 1, 2], [1, 2, 0], [2, 0, 1]]),
        (2, [[2, 0, 1], [2, 0, 1], [2, 0, 1]]),
        (1, [[1, 0, 2], [1, 2, 0], [1, 0, 2]]),
        (7, [[0, 2, 1], [2, 0, 1], [0, 2, 1]]),
    ],
)
def test_members_are_asked_in_the_order_of_the_preference(preference, orders):
    leads = {2: False, 1: True, 0: False}

    assert [in_order(leads, preference, spread) for spread in range(3)] == orders
    assert in_order({}, preference, 1) == []


@pytest.mark.parametrize("preference, preferred", [(FOLLOWER, 0), (LEADER, 1), (2, 2)])
def test_a_range_is_read_from_the_preferred_member_and_from_another_when_it_fails(
    members, preference, preferred
):
    reader = open_reader(members, read_preference=preference)
    assert len(list(reader.blocks(0, 640))) == 10
    assert [bool(member.reads) for member in members] == [m.member_id == preferred for m in members]

    members[preferred].is_up = False
    assert len(list(reader.blocks(640, 1280))) == 10


@pytest.mark.parametrize(
    "text, preference", [(" Leader", LEADER), ("any", ANY), ("follower", FOLLOWER), ("2", 2)]
)
def test_a_preference_is_a_word_or_a_members_id(text, preference):
    assert parse_preference(text) == preference


@pytest.mark.parametrize("text", ["", "nearest", "-1", "1.0", "²", "9" * 10])
def test_what_is_no_preference_is_refused(text):
    with pytest.raises(ConfigurationError, match="expected follower, leader, any or a member's id"):
        parse_preference(text)
