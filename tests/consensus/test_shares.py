"""What one address or principal may take of sessions, lanes and consumer groups."""

import pytest

from cluster.protocol.consumer import Consumer, with_consumer
from cluster.protocol.enums import EventCode
from cluster.protocol.lane import REGISTRATION, Lane, with_lane
from cluster.protocol.shares import FillLevel, Taken, beyond_share, sharer_at
from tests.consensus.session_language import TOKEN, Sessions, Watching

RULE = ": one has at most 3 times as many as are free"


def anybody(**settings):
    sessions = Sessions(**settings)
    sessions.outside.connected = set(range(1, 50))
    return sessions


def by_credentials(**settings):
    return anybody(
        authenticator=Watching(lambda session: session.authenticate(session.encoded_credentials)), **settings
    )


def opens_at(sessions, connection_ids, address, credentials=b""):
    """Asks for a session over each connection; returns how many of them are open then."""
    before = len(sessions.manager.sessions)
    for connection_id in connection_ids:
        sessions.outside.addresses[connection_id] = address
        sessions.connects(connection_id, credentials=credentials)
        sessions.tick()
    sessions.tick()  # in which the last refusal is sent
    return len(sessions.manager.sessions) - before


def test_clients_that_take_all_they_get_leave_room_for_one_that_comes():
    for clients, least_free in ((1, 256), (2, 147), (7, 47)):
        held = [0] * clients
        while any(not beyond_share(count, 1024 - sum(held)) for count in held):
            for client, count in enumerate(held):
                held[client] += not beyond_share(count, 1024 - sum(held))
        assert 1024 - sum(held) >= least_free - clients
        assert max(held) - min(held) <= 1


def test_the_last_one_is_for_who_has_few():
    assert not beyond_share(0, 1)
    assert not beyond_share(2, 1)
    assert beyond_share(3, 1) == "has 3, and 1 are free: one has at most 3 times as many as are free"


def test_four_fifths_of_a_bound_are_told_once_until_half_of_it_is_free_again():
    said = []
    fill = FillLevel("max_sessions", said.append)
    for count in (7, 8, 9, 10, 6, 8, 5, 8):
        fill.update(count, 10)
    assert said == ["max_sessions: 8 of 10 are taken"] * 2

    FillLevel("max_sessions", said.append).update(4, 4)
    assert len(said) == 2


def test_one_address_leaves_a_quarter_of_the_sessions_to_others():
    sessions = anybody(max_sessions=16)
    assert opens_at(sessions, range(1, 21), "10.0.0.1") == 12
    told = "concurrent session limit, 10.0.0.1 has 12, and 4 are free"
    assert sessions.outside.events(20)[-1] == (EventCode.ERROR, f"{told}{RULE} (max_sessions)")

    assert opens_at(sessions, [30], "10.0.0.2") == 1


def test_clients_of_this_host_have_all_sessions_when_they_are_alone():
    assert opens_at(anybody(max_sessions=16), range(1, 21), "") == 16


def test_a_session_stays_in_the_share_of_its_address_while_its_client_is_away():
    sessions = anybody(max_sessions=8)
    assert opens_at(sessions, range(1, 9), "10.0.0.1") == 6
    for connection_id in range(1, 9):
        sessions.manager.on_disconnect(connection_id)

    assert opens_at(sessions, range(11, 19), "10.0.0.1") == 0
    assert opens_at(sessions, [19], "10.0.0.2") == 1


def test_a_session_of_an_earlier_leader_comes_into_the_share_of_the_address_that_takes_it_back():
    sessions = anybody(max_sessions=8)
    assert opens_at(sessions, range(1, 7), "") == 6
    for session_id in sessions.manager.sessions:
        session = sessions.finds(session_id, TOKEN, b"secret")
        sessions.outside.addresses[20 + session_id] = "10.0.0.1"
        sessions.manager.link(session, 20 + session_id, 0, has_heard_ok=True)

    assert opens_at(sessions, [40], "10.0.0.1") == 0
    assert opens_at(sessions, [41], "10.0.0.2") == 1


def test_principals_have_shares_of_their_own_wherever_they_come_from():
    sessions = by_credentials(max_sessions=16)
    assert opens_at(sessions, range(1, 21), "10.0.0.1", b"eve") == 12
    told = "concurrent session limit, principal 'eve' has 12, and 4 are free: "
    assert sessions.outside.events(20)[-1][1].startswith(told)

    assert opens_at(sessions, [30], "10.0.0.1", b"alice") == 1
    assert opens_at(sessions, [31], "10.0.0.2", b"eve") == 0


def test_a_session_that_waits_for_the_log_is_no_more_in_its_own_way():
    sessions = by_credentials(max_sessions=16)
    assert opens_at(sessions, [20], "10.0.0.1", b"alice") == 1
    assert opens_at(sessions, range(1, 12), "10.0.0.1", b"eve") == 11
    sessions.outside.takes_log = False
    assert opens_at(sessions, [12], "10.0.0.1", b"eve") == 0

    sessions.outside.takes_log = True
    sessions.tick()

    assert len(sessions.manager.sessions) == 13


def test_who_is_not_known_yet_leaves_pending_sessions_to_other_addresses():
    sessions = anybody(authenticator=Watching(lambda session: None), max_sessions=16)
    opens_at(sessions, range(1, 21), "10.0.0.1")
    assert sessions.manager.pending_count == 12

    opens_at(sessions, [30], "10.0.0.2")
    assert sessions.manager.pending_count == 13


def test_one_principal_leaves_a_quarter_of_the_lanes_to_others():
    sessions = by_credentials(lanes_max=8, max_sessions=100)

    def opened(connection_id, lane, principal):
        sessions.connects(connection_id, credentials=with_lane(principal, lane))
        sessions.tick()
        sessions.tick()
        return sessions.outside.events(connection_id)[-1]

    assert [opened(i, Lane("a", i, 1), b"eve")[0] for i in range(1, 7)] == [EventCode.OK] * 6
    told = f"lane b/0: principal 'eve' has 6, and 2 are free{RULE}"
    assert opened(11, Lane("b", 0, 1), b"eve") == (EventCode.ERROR, f"{told} (lanes_max)")
    assert opened(12, Lane("c", 0, 1), b"alice")[0] is EventCode.OK
    assert opened(13, Lane("a", 1, 2), b"eve")[0] is EventCode.OK  # a lane that it has


def test_lanes_that_are_not_committed_yet_are_in_the_share_of_their_principal():
    sessions = by_credentials(lanes_max=8, max_sessions=100)
    sessions.is_committing = False
    for connection_id in range(1, 8):
        lane = Lane(f"a{connection_id}", 0, 1)
        sessions.connects(connection_id, credentials=with_lane(b"eve", lane))
        sessions.tick()
    sessions.tick()

    assert len(sessions.manager.sessions) == 6
    assert "principal 'eve' has 6, and 2 are free" in sessions.outside.events(7)[-1][1]


def test_registrations_of_further_applications_count_towards_the_lanes():
    sessions = anybody(lanes_max=2, max_sessions=100)

    def code(connection_id, lane):
        sessions.connects(connection_id, credentials=with_lane(b"", lane))
        sessions.tick()
        sessions.tick()
        return sessions.outside.events(connection_id)[-1][0]

    assert code(1, Lane("a", 0, 1)) is code(2, Lane("b", 0, 1)) is EventCode.OK
    assert code(3, Lane("a", REGISTRATION, 1, partitions=1)) is EventCode.OK  # or its batch could not end
    assert code(4, Lane("c", REGISTRATION, 1)) is EventCode.ERROR


def test_one_principal_leaves_a_quarter_of_the_consumer_groups_to_others():
    sessions = by_credentials(consumers_max=8, max_sessions=100)
    sessions.manager.sweep(sessions.outside.position)

    def reported(connection_id, group, principal):
        sessions.connects(connection_id, credentials=with_consumer(principal, Consumer(group, 0)))
        sessions.tick()
        sessions.tick()
        return sessions.outside.events(connection_id)[-1]

    assert [reported(i, f"g{i}", b"eve")[0] for i in range(1, 7)] == [EventCode.OK] * 6
    told = f"consumer group h: principal 'eve' has 6, and 2 are free{RULE}"
    assert reported(11, "h", b"eve") == (EventCode.ERROR, f"{told} (consumers_max)")
    assert reported(12, "k", b"alice")[0] is EventCode.OK


@pytest.mark.parametrize(
    ("address", "sharer"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("", ""),
        ("2001:db8:0:7:aa:bb:cc:dd", "2001:db8:0:7::/64"),
        ("%5B2001:db8:0:7::1%5D", "2001:db8:0:7::/64"),
        ("[2001:db8:0:8::1]", "2001:db8:0:8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::1", "::1"),
        ("no:address", "no:address"),
    ],
)
def test_addresses_of_one_network_of_ipv6_share(address, sharer):
    assert sharer_at(address) == sharer


def test_a_host_that_picks_another_address_for_each_session_has_one_share():
    sessions = anybody(max_sessions=8)
    opened = sum(opens_at(sessions, [number], f"2001:db8::{number}") for number in range(1, 9))
    assert opened == 6
    assert opens_at(sessions, [9], "2001:db8:0:1::1") == 1

    readers = Taken()
    with readers.by("2001:db8::1"), readers.by("2001:db8::2"), readers.by("2001:db8::3"):
        assert readers.beyond_share("2001:db8::4", 1).startswith("has 3, and 1 are free")
        assert not readers.beyond_share("2001:db8:0:1::1", 1)
    assert readers.count == 0
