"""Consumer groups: what a leader takes and refuses, what is kept, by those who read its log, too."""

import pytest

from cluster.consensus.authentication import AllowAllButAdmin
from cluster.consensus.context import SECOND
from cluster.errors import ConfigurationError, RemoteProtocolError
from cluster.protocol.consumer import (
    Consumer,
    ConsumerPrincipal,
    group_position,
    plain_principal,
    positions_in,
    positions_text,
    split_consumer,
    with_consumer,
)
from cluster.protocol.enums import CloseReason, EventCode
from cluster.protocol.lane import Lane, LanePrincipal, with_lane
from cluster.protocol.log import SessionOpenEvent
from tests.consensus.session_language import LEADING, TERM, Sessions, Watching


class Groups(Sessions):
    """Sessions that report consumer groups; the leader's log is committed up to 1000."""

    def __init__(self, authenticator=None, authorisation=None, **settings):
        super().__init__(authenticator, authorisation, **settings)
        self.manager.sweep(self.outside.position)

    def reports(self, connection_id, group, position, principal=b""):
        self.connects(connection_id, credentials=with_consumer(principal, Consumer(group, position)))
        self.tick()
        self.tick()  # in which refusals are sent
        for session_id in list(self.manager.sessions):
            self.manager.close(session_id, CloseReason.CLIENT_ACTION, LEADING)
        self.manager.sweep(self.outside.position)
        return self.outside.events(connection_id)[-1]

    def reads(self, group, position, timestamp, principal=b"", retention=1000):
        named = ConsumerPrincipal(principal, Consumer(group, position), retention).encode()
        session_id = self.manager.next_session_id
        event = SessionOpenEvent(TERM, 9, session_id, timestamp, 102, "channel", named)
        self.manager.on_replay_session_open(event, 2000 + session_id)

    @property
    def records(self):
        return list(self.manager.consumers.records())

    @property
    def positions(self):
        return {record.group.decode(): record.position for record in self.records}


def by_credentials():
    """Whoever comes is who his credentials say."""
    return Watching(lambda session: session.authenticate(session.encoded_credentials))


# ---- names


@pytest.mark.parametrize("consumer", [Consumer("billing", 0), Consumer("a:b/ü", 2**63 - 1)], ids=str)
def test_a_name_is_read_as_it_was_written(consumer):
    assert split_consumer(with_consumer(b"alice", consumer)) == (b"alice", consumer)
    named = ConsumerPrincipal(b"alice", consumer, 9000)
    assert ConsumerPrincipal.decode(named.encode()) == named
    assert plain_principal(named.encode()) == b"alice"


@pytest.mark.parametrize(
    "field",
    [
        b"consumer:1:billing",
        b"\0consumer:1:",
        b"\0consumer:-1:billing",
        b"\0consumer:9223372036854775808:billing",
        b"\0consumer:1:\xff",
        b"\0consumer:1:" + b"x" * 257,
    ],
)
def test_what_is_no_name_of_a_group_belongs_to_the_field(field):
    assert split_consumer(field) == (field, None)


def test_a_principal_that_lacks_a_mark_of_the_leader_has_no_group():
    field = with_consumer(b"alice", Consumer("billing", 1))
    assert ConsumerPrincipal.decode(field) == (field, None, 0)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("", 0), "consumer: group is of 0 bytes, expected 1 to 256"),
        (("a\0", 0), "consumer: group is 'a\\x00', expected text without \\0"),
        (("a\ud800", 0), "consumer: group is 'a\\ud800', expected text without \\0"),
        (("a", -1), "consumer: position is -1, expected 0 to 2**63 - 1"),
    ],
)
def test_a_group_that_cannot_be_is_refused_by_its_name(arguments, told):
    with pytest.raises(ConfigurationError) as refused:
        Consumer(*arguments)
    assert str(refused.value) == told


# ---- a leader


def test_a_report_is_kept_and_its_client_hears_where_the_group_is():
    groups = Groups()
    code, detail = groups.reports(1, "billing", 640)

    assert (code, group_position(detail)) == (EventCode.OK, 640)
    assert groups.positions == {"billing": 640}
    assert groups.outside.log == [("open", 1), ("close", 1, CloseReason.CLIENT_ACTION)]


@pytest.mark.conformance("S-233")
def test_a_group_never_goes_back_and_a_refused_report_is_not_in_the_log():
    groups = Groups()
    groups.reports(1, "billing", 640)
    before = list(groups.outside.log)

    told = "consumer group billing: position 320 is before 640, which the group is at"
    assert groups.reports(2, "billing", 320) == (EventCode.ERROR, told)
    assert (groups.outside.log, groups.positions) == (before, {"billing": 640})
    assert groups.reports(3, "billing", 640)[0] is EventCode.OK


def test_a_position_that_is_not_committed_is_refused():
    told = "consumer group billing: position 1001 is beyond the commit position 1000"
    assert Groups().reports(1, "billing", 1001) == (EventCode.ERROR, told)
    assert Groups().reports(1, "billing", 1000)[0] is EventCode.OK


def test_a_group_is_its_first_principals():
    groups = Groups(authenticator=by_credentials(), authorisation=AllowAllButAdmin())
    groups.reports(1, "billing", 320, b"alice")

    told = "consumer group billing is another principal's"
    assert groups.reports(2, "billing", 640, b"eve") == (EventCode.AUTHENTICATION_REJECTED, told)
    assert groups.outside.refused == [(2, b"eve", "to open a session", told)]
    assert groups.reports(3, "billing", 640, b"alice")[0] is EventCode.OK


def test_nobody_is_given_a_group_that_he_has_not_asked_for():
    named = ConsumerPrincipal(b"eve", Consumer("billing", 640), 5).encode()
    groups = Groups(authenticator=Watching(lambda session: session.authenticate(named)))
    groups.opens(1)

    assert groups.manager.sessions[1].encoded_principal == b"eve"
    assert groups.positions == {}


def test_groups_are_bounded_and_forgotten_ones_make_room():
    groups = Groups(consumers_max=1, consumer_retention_ns=100 * SECOND)
    groups.reports(1, "billing", 640)

    told = "consumer group audit: 1 groups are kept, as many as consumers_max allows"
    assert groups.reports(2, "audit", 0) == (EventCode.ERROR, told)
    groups.now_ns = 101 * SECOND
    assert groups.reports(3, "audit", 0)[0] is EventCode.OK
    assert groups.positions == {"audit": 0}


def test_a_group_that_is_not_committed_yet_has_its_place():
    groups = Groups(consumers_max=1)
    groups.is_committing = False
    for connection_id, group in ((1, "billing"), (2, "audit")):
        groups.connects(connection_id, credentials=with_consumer(b"", Consumer(group, 0)))
        groups.tick()
    groups.tick()

    assert groups.outside.log == [("open", 1)]
    assert groups.outside.events(2)[-1][1].startswith("consumer group audit: 1 groups are kept")


def test_a_report_waits_for_the_last_one_of_its_group_to_be_committed():
    groups = Groups()
    groups.is_committing = False
    for connection_id, position in ((1, 640), (2, 320)):
        groups.connects(connection_id, credentials=with_consumer(b"", Consumer("billing", position)))
        groups.tick()
    assert groups.outside.log == [("open", 1)]

    groups.manager.sweep(groups.outside.position)
    groups.tick()
    groups.tick()
    assert groups.outside.log == [("open", 1)]
    assert groups.outside.events(2)[-1][0] is EventCode.ERROR


def test_a_report_that_is_not_committed_never_was():
    groups = Groups()
    groups.is_committing = False
    groups.connects(1, credentials=with_consumer(b"", Consumer("billing", 640)))
    groups.tick()
    groups.manager.prepare_for_new_election(1000, LEADING, 0)

    assert groups.positions == {}
    groups.is_committing = True
    assert groups.reports(2, "billing", 320)[0] is EventCode.OK


def test_a_lanes_application_may_look_like_a_group():
    groups = Groups()
    lane = Lane("a", 0, 1)
    groups.connects(1, credentials=with_lane(with_consumer(b"", Consumer("billing", 1)), lane))
    groups.tick()

    assert LanePrincipal.decode(groups.manager.sessions[1].encoded_principal).lane == lane
    assert groups.positions == {}


# ---- who reads the log


@pytest.mark.conformance("S-234")
def test_what_is_forgotten_follows_from_the_log():
    groups = Groups(consumer_retention_ns=1_000_000)
    groups.reads("billing", 640, timestamp=10, retention=50)
    groups.reads("audit", 64, timestamp=60, retention=50)
    assert groups.positions == {"audit": 64, "billing": 640}
    groups.reads("audit", 96, timestamp=61, retention=50)
    assert groups.positions == {"audit": 96}


@pytest.mark.conformance("S-234")
def test_a_group_is_kept_as_long_as_its_last_report_says():
    groups = Groups()
    groups.reads("billing", 640, timestamp=10, retention=50)
    groups.reads("billing", 640, timestamp=20, retention=500)
    groups.reads("audit", 64, timestamp=520, retention=50)
    assert groups.positions == {"audit": 64, "billing": 640}
    groups.reads("audit", 64, timestamp=521, retention=50)
    assert groups.positions == {"audit": 64}


def test_a_group_does_not_fall_by_what_is_in_the_log():
    groups = Groups()
    for position in (320, 640, 320):
        groups.reads("billing", position, timestamp=10)

    assert groups.positions == {"billing": 640}


def test_a_leader_that_knows_of_a_jump_says_so_and_no_reader_of_the_log_forgets_by_it():
    groups = Groups()
    groups.reads("billing", 640, timestamp=10, retention=50)
    groups.reads("audit", 64, timestamp=1_000, retention=1_050)
    assert groups.positions == {"audit": 64, "billing": 640}
    groups.reads("audit", 64, timestamp=1_001, retention=50)
    assert groups.positions == {"audit": 64}


@pytest.mark.parametrize("jumped", [0, 1_000])
def test_a_group_keeps_its_place_and_its_log_across_a_jump(jumped):
    groups = Groups(consumer_retention_ns=60 * SECOND)
    groups.reports(1, "billing", 640)
    groups.now_ns += 61 * SECOND
    groups.manager.keep_longer(jumped)
    consumers = groups.manager.consumers
    is_kept = jumped > 0
    assert (consumers.slowest(groups.cluster_time) is not None) is is_kept
    assert (groups.reports(2, "billing", 64)[0] is EventCode.ERROR) is is_kept
    groups.reports(3, "audit", 64)
    assert groups.positions == {"audit": 64, "billing": 640 if is_kept else 64}


def test_the_slowest_group_is_the_one_furthest_behind_of_those_that_are_kept():
    groups = Groups()
    assert groups.manager.consumers.slowest(0) is None
    groups.reads("audit", 64, timestamp=10, retention=50)
    groups.reads("billing", 640, timestamp=20, retention=50)

    slowest = groups.manager.consumers.slowest
    assert slowest(60) == Consumer("audit", 64)
    assert slowest(61) == Consumer("billing", 640)
    assert slowest(71) is None


def test_a_table_that_begins_from_a_snapshot_goes_on_as_the_one_that_took_it():
    one, other = Groups(), Groups()
    one.reads("billing", 640, timestamp=10, principal=b"alice", retention=50)
    other.manager.consumers.load(one.records, 2000)
    assert other.records == one.records
    assert other.manager.consumers.slowest(61) is None
    assert other.manager.consumers.is_anothers("billing", b"eve", 60)

    seeded = Groups()
    seeded.manager.consumers.load(one.records, 320)
    assert seeded.positions == {"billing": 320}


def test_positions_of_groups_are_a_text_and_back():
    positions = {"billing": 64, "a:b \\xe9": 2**63 - 1}
    assert positions_in(positions_text(positions)) == positions
    assert positions_in(positions_text({})) == {}


@pytest.mark.parametrize("text", ["64", "x:billing", "64:", "64:a\0", "-1:a", "\u0661:a"])
def test_a_text_that_tells_no_positions_is_an_error_of_the_peer(text):
    with pytest.raises(RemoteProtocolError, match="expected a position, a colon and a name"):
        positions_in(text)
