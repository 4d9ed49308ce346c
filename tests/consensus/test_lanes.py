"""Who may open a lane, who is displaced, what is counted: by a leader, and by those who read its log."""

from dataclasses import replace

import pytest

from cluster.consensus.authentication import AllowAllButAdmin
from cluster.consensus.context import SECOND
from cluster.errors import ConfigurationError
from cluster.protocol.enums import CloseReason, EventCode
from cluster.protocol.lane import (
    FORGET,
    REGISTRATION,
    Lane,
    LanePrincipal,
    LaneStanding,
    registered_text,
    split_lane,
    with_lane,
)
from cluster.protocol.log import SessionCloseEvent, SessionOpenEvent
from tests.consensus.session_language import LEADING, TERM, Sessions, Watching

LANE = Lane("orders", 3, 17)


class Lanes(Sessions):
    """Sessions that are opened with a lane."""

    def asks(self, connection_id, lane, principal=b""):
        self.connects(connection_id, credentials=with_lane(principal, lane))
        self.tick()

    def writes(self, session_id, rows, position=5000):
        row = self.manager.table.slots[self.manager.table.slot_of(session_id)]
        row["appended"] = row["committed"] = rows
        row["committed_position"] = position

    def refusal(self, connection_id):
        self.tick()  # in which refusals are sent
        (event,) = self.outside.events(connection_id)
        return event

    def reads_open(self, session_id, lane, position, timestamp=0, principal=b"", retention=1000):
        named = LanePrincipal(principal, lane, retention).encode()
        event = SessionOpenEvent(TERM, 9, session_id, timestamp, 102, "channel", named)
        self.manager.on_replay_session_open(event, position)

    def reads_close(self, session_id):
        event = SessionCloseEvent(TERM, session_id, 0, CloseReason.CLIENT_ACTION)
        self.manager.on_replay_session_close(event)


def by_credentials():
    """Whoever comes is who his credentials say."""
    return Watching(lambda session: session.authenticate(session.encoded_credentials))


class OnlyRootAdministers(AllowAllButAdmin):
    def is_authorised(self, schema_id, action_id, request_type, encoded_principal):
        allowed = super().is_authorised(schema_id, action_id, request_type, encoded_principal)
        return allowed or encoded_principal == b"root"


# ---- names


@pytest.mark.parametrize(
    "lane", [LANE, Lane("a:b/ü", 0, 0), Lane("x", REGISTRATION, 2**63 - 1, 2**31 - 1, 2**63 - 1)], ids=str
)
def test_a_name_is_read_as_it_was_written(lane):
    known = replace(lane, is_known=True)
    assert split_lane(with_lane(b"alice", lane)) == (b"alice", lane)
    assert split_lane(with_lane(b"alice", known)) == (b"alice", known) == (b"alice", lane), "one lane"
    assert split_lane(with_lane(b"alice", known))[1].is_known
    named = LanePrincipal(b"alice", lane, 604_800_000)
    assert LanePrincipal.decode(named.encode()) == named
    assert LanePrincipal(b"alice", known, 604_800_000).encode() == named.encode(), "that was asked"


@pytest.mark.parametrize(
    "field", [b"alice", b"alice\0kept:5", with_lane(b"alice", LANE), b"\0kept:-1" + with_lane(b"", LANE)]
)
def test_a_principal_that_lacks_a_mark_of_the_leader_has_no_lane(field):
    assert LanePrincipal.decode(field) == (field, None, 0)


@pytest.mark.parametrize(
    "field",
    [
        b"alice",
        b"lane:3:17:0:0:orders",
        b"\0lane:3:17:0:0:",
        b"\0lane:-3:17:0:0:orders",
        b"\0lane:3:17:1:0:orders",
        b"\0lane:3:17:0:1:orders",
        b"\0lane:3:17:0:orders",
        b"\0lane:3:9223372036854775808:0:0:orders",
        b"\0lane:3:17:0:0:\xff",
        b"\0lane:3:17:0:0:" + b"x" * 257,
    ],
)
def test_what_is_no_name_of_a_lane_belongs_to_the_field(field):
    assert split_lane(field) == (field, None)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("", 0, 0), "lane: application is of 0 bytes, expected 1 to 256"),
        (("a\0", 0, 0), "lane: application is 'a\\x00', expected text without \\0"),
        (("a", -3, 0), "lane: partition is -3, expected -2 to 2**31 - 1"),
        (("a", 0, -1), "lane: batch is -1, expected 0 to 2**63 - 1"),
        (("a", 0, 0, 1), "lane: partitions is 1, expected 0 to 0"),
        (("a", 0, 0, 0, 1), "lane: rows is 1, expected 0 to 0"),
    ],
)
def test_a_lane_that_cannot_be_is_refused_by_its_name(arguments, told):
    with pytest.raises(ConfigurationError) as refused:
        Lane(*arguments)
    assert str(refused.value) == told


# ---- a leader


@pytest.mark.conformance("S-190")
def test_the_holder_is_closed_in_the_log_before_the_next_open():
    lanes = Lanes()
    lanes.asks(1, LANE)
    lanes.asks(2, LANE)

    assert lanes.outside.log == [("open", 1), ("close", 1, CloseReason.CLIENT_ACTION), ("open", 2)]
    assert lanes.outside.events(1)[-1] == (
        EventCode.CLOSED,
        "displaced by session 2, batch 17 of lane orders/3",
    )


@pytest.mark.conformance("S-190")
def test_a_lane_waits_until_the_log_takes_its_holders_close(monkeypatch):
    lanes = Lanes()
    lanes.asks(1, LANE)
    with monkeypatch.context() as full:
        full.setattr(lanes.outside, "append_session_close", lambda session, reason: -2)
        lanes.asks(2, LANE)
    assert lanes.outside.log == [("open", 1)]

    lanes.tick()
    assert lanes.outside.log == [("open", 1), ("close", 1, CloseReason.CLIENT_ACTION), ("open", 2)]


@pytest.mark.conformance("S-190")
def test_a_lane_whose_last_open_is_not_committed_waits():
    lanes = Lanes()
    lanes.is_committing = False
    lanes.asks(1, LANE)
    lanes.asks(2, LANE)
    assert lanes.outside.log == [("open", 1)]

    lanes.is_committing = True
    lanes.tick()
    lanes.tick()
    assert lanes.outside.log[-1] == ("open", 2)


@pytest.mark.conformance("S-189")
def test_the_answer_has_the_rows_before_the_open_and_comes_when_it_is_committed():
    lanes = Lanes()
    lanes.asks(1, LANE)
    begin = lanes.outside.position
    lanes.writes(1, rows=5)
    lanes.is_committing = False
    lanes.asks(2, LANE)
    assert lanes.outside.events(2) == []

    lanes.is_committing = True
    lanes.tick()
    standing = LaneStanding(rows=5, begin=begin, end=5000, session_id=1)
    assert lanes.outside.events(2) == [(EventCode.OK, standing.to_text())]


@pytest.mark.conformance("S-189")
def test_a_session_that_was_opened_and_closed_in_one_commit_leaves_its_rows():
    lanes = Lanes()
    lanes.is_committing = False
    lanes.asks(1, LANE)
    lanes.writes(1, rows=5)
    lanes.manager.close(1, CloseReason.CLIENT_ACTION, LEADING)
    lanes.manager.sweep(lanes.outside.position)
    lanes.is_committing = True
    lanes.asks(2, LANE)

    assert lanes.manager.lanes.standing(2).rows == 5


def test_an_open_that_was_never_committed_leaves_no_lane():
    lanes = Lanes()
    position = lanes.outside.position
    lanes.is_committing = False
    lanes.asks(1, LANE)
    lanes.manager.prepare_for_new_election(position, LEADING, 0)

    assert len(lanes.manager.lanes) == 0
    assert not lanes.manager.lanes.is_undecided(LANE)


def test_a_smaller_batch_is_refused_and_not_in_the_log():
    lanes = Lanes()
    lanes.asks(1, LANE)
    lanes.asks(2, Lane("orders", 3, 16))

    assert lanes.refusal(2) == (
        EventCode.ERROR,
        "lane orders/3: batch 16 is older than 17, which the lane is at",
    )
    assert lanes.outside.log == [("open", 1)]


@pytest.mark.conformance("S-192")
def test_a_registration_ends_the_sessions_of_the_application_and_no_others():
    lanes = Lanes()
    lanes.asks(1, LANE)
    lanes.asks(2, Lane("orders", 4, 17))
    lanes.asks(3, Lane("bills", 4, 17))
    lanes.asks(4, Lane("orders", REGISTRATION, 17, 5))

    assert lanes.outside.log[3:] == [
        ("close", 1, CloseReason.CLIENT_ACTION),
        ("close", 2, CloseReason.CLIENT_ACTION),
        ("open", 4),
    ]


@pytest.mark.conformance("S-192")
def test_of_a_batch_that_is_registered_no_lane_is_opened_again():
    lanes = Lanes()
    lanes.asks(1, LANE)
    lanes.asks(2, Lane("orders", REGISTRATION, 17, 5))
    lanes.asks(3, LANE)
    lanes.asks(4, Lane("orders", 4, 17))  # which had no rows
    lanes.asks(5, Lane("orders", 3, 18))

    assert [lanes.refusal(id_)[1] for id_ in (3, 4)] == [registered_text(LANE, 17)] * 2
    assert lanes.outside.log[-1] == ("open", 5)


@pytest.mark.conformance("S-192")
def test_rows_that_are_appended_and_not_committed_stand_against_a_registration_without_them():
    lanes = Lanes()
    lanes.asks(1, LANE)
    lanes.manager.table.slots["appended"][lanes.manager.table.slot_of(1)] = 2
    lanes.asks(2, Lane("orders", REGISTRATION, 17, 3))

    assert lanes.refusal(2) == (
        EventCode.ERROR,
        "batch 17 of orders has 2 rows in partition 3, which one of 3 partitions has not",
    )


def test_an_application_belongs_to_the_principal_that_opened_it_first():
    lanes = Lanes(authenticator=by_credentials())
    lanes.asks(1, LANE, b"alice")
    lanes.asks(2, Lane("orders", 4, 17), b"bob")
    lanes.asks(3, Lane("orders", 4, 17), b"alice")

    told = "application orders is another principal's"
    assert lanes.refusal(2) == (EventCode.AUTHENTICATION_REJECTED, told)
    assert lanes.outside.refused == [(2, b"bob", "to open a session", told)]
    assert lanes.refusal(3)[0] is EventCode.OK


def test_the_first_lanes_of_an_application_are_opened_one_after_the_other():
    """Else two principals could open it in one commit."""
    lanes = Lanes(authenticator=by_credentials())
    lanes.is_committing = False
    lanes.asks(1, LANE, b"alice")
    lanes.asks(2, Lane("orders", 4, 17), b"bob")
    assert lanes.outside.log == [("open", 1)]


def test_rights_and_authenticator_see_the_principal_without_the_lane():
    class Noting(AllowAllButAdmin):
        def is_authorised(self, schema_id, action_id, request_type, encoded_principal):
            asked.append(encoded_principal)
            return super().is_authorised(schema_id, action_id, request_type, encoded_principal)

    asked = []
    watching = by_credentials()
    lanes = Lanes(authenticator=watching, authorisation=Noting())
    lanes.asks(1, LANE, b"alice")

    assert watching.asked[0] == ("connect", 1, b"alice")
    assert asked == [b"alice"]
    named = LanePrincipal.decode(lanes.manager.sessions[1].encoded_principal)
    assert named == (b"alice", LANE, lanes.manager.lanes.retention)


def test_an_authenticator_gives_nobody_a_lane():
    named = LanePrincipal(b"eve", LANE, 5).encode()
    lanes = Lanes(authenticator=Watching(lambda session: session.authenticate(named)))
    lanes.connects(1)
    lanes.tick()

    assert lanes.manager.sessions[1].encoded_principal == b"eve"


def test_a_principal_that_is_too_long_with_its_lane_is_refused():
    lanes = Lanes(authenticator=by_credentials())
    longest = 4096 - len(LanePrincipal(b"", LANE, lanes.manager.lanes.retention).encode())
    lanes.asks(1, LANE, b"a" * longest)
    lanes.asks(2, LANE, b"a" * (longest + 1))

    assert list(lanes.manager.sessions) == [1]
    assert lanes.refusal(2)[0] is EventCode.AUTHENTICATION_REJECTED


def test_an_administrator_forgets_an_application_that_no_session_writes_for():
    lanes = Lanes(by_credentials(), OnlyRootAdministers())
    for connection_id in (1, 2, 3, 4):
        lanes.outside.addresses[connection_id] = "10.0.0.1"
    lanes.asks(1, LANE, b"alice")
    lanes.asks(2, Lane("orders", FORGET, 0), b"alice")
    told = "no right to admin, which it takes to forget lanes"
    assert lanes.refusal(2) == (EventCode.AUTHENTICATION_REJECTED, told)
    lanes.asks(3, Lane("orders", FORGET, 0), b"root")
    told = "application orders is not finished: session 1 holds a lane of it"
    assert lanes.refusal(3) == (EventCode.ERROR, told)

    lanes.manager.close(1, CloseReason.CLIENT_ACTION, LEADING)
    lanes.tick()
    lanes.asks(4, Lane("orders", FORGET, 0), b"root")
    assert lanes.outside.events(4) == [(EventCode.OK, LaneStanding(0, 1288, 1288, 4).to_text())]
    assert len(lanes.manager.lanes) == 0
    lanes.asks(5, Lane("orders", FORGET, 0), b"")  # over a Unix socket, where no right is needed
    assert lanes.refusal(5) == (EventCode.ERROR, "application orders has no lanes")


def test_a_lane_is_not_opened_while_its_application_is_being_forgotten():
    lanes = Lanes()
    lanes.asks(1, LANE)
    lanes.manager.close(1, CloseReason.CLIENT_ACTION, LEADING)
    lanes.tick()
    lanes.is_committing = False
    lanes.asks(2, Lane("orders", FORGET, 0))
    lanes.asks(3, Lane("orders", 4, 18))
    assert [entry[:2] for entry in lanes.outside.log[2:]] == [("open", 2)]
    lanes.is_committing = True
    lanes.tick()
    lanes.tick()
    assert lanes.outside.log[3:] == [("open", 3)]
    assert [record.partition for record in lanes.manager.lanes.records()] == [4]


def test_who_reads_the_log_forgets_the_application_at_the_same_entry_unless_it_is_held():
    lanes = Lanes()
    lanes.reads_open(1, LANE, 2000)
    lanes.reads_open(2, Lane("orders", FORGET, 0), 2100)
    assert len(lanes.manager.lanes) == 1
    lanes.reads_close(1)
    lanes.reads_open(3, Lane("orders", FORGET, 0), 2200)
    lanes.reads_open(4, Lane("none", FORGET, 0), 2300)
    assert list(lanes.manager.lanes.records()) == []
    assert len(lanes.manager.lanes) == 0


def test_lanes_are_bounded_and_those_of_forgotten_applications_make_room():
    lanes = Lanes(lanes_max=2, lane_retention_ns=100 * SECOND)
    lanes.asks(1, LANE)
    lanes.asks(2, Lane("orders", 4, 17))
    lanes.asks(3, Lane("orders", 5, 17))
    assert lanes.refusal(3) == (
        EventCode.ERROR,
        "lane orders/5: 2 lanes are kept, as many as lanes_max allows",
    )

    for session_id in (1, 2):
        lanes.manager.close(session_id, CloseReason.CLIENT_ACTION, LEADING)
    lanes.tick(at=101 * SECOND)
    lanes.asks(4, Lane("bills", 0, 1))
    assert lanes.refusal(4)[0] is EventCode.OK
    assert len(lanes.manager.lanes) == 1


# ---- the log


def records(lanes):
    return list(lanes.manager.lanes.records())


@pytest.mark.conformance("S-191")
def test_whoever_reads_the_log_has_what_its_leader_has():
    leader, follower = Lanes(), Lanes()
    leader.asks(1, LANE)
    follower.reads_open(1, LANE, leader.outside.position)
    for lanes in (leader, follower):
        lanes.writes(1, rows=4, position=1500)
    leader.asks(2, LANE)
    follower.reads_close(1)
    follower.reads_open(2, LANE, leader.outside.position)
    for lanes in (leader, follower):
        lanes.writes(2, rows=6, position=1700)

    assert records(leader) == records(follower)
    assert records(leader)[0].rows == 4


@pytest.mark.conformance("S-191")
def test_a_lane_has_the_rows_of_all_sessions_that_held_it_for_the_batch():
    lanes = Lanes()
    for session_id, rows in ((1, 4), (2, 6), (3, 5), (4, 0)):
        lanes.reads_open(session_id, LANE, 1000 * session_id)
        lanes.writes(session_id, rows, position=1000 * session_id + 500)
        lanes.reads_close(session_id)
    lanes.reads_open(5, LANE, 5000)

    assert lanes.manager.lanes.standing(5) == LaneStanding(rows=15, begin=1000, end=3500, session_id=1)


@pytest.mark.conformance("S-191")
def test_a_batch_that_is_greater_begins_with_no_rows_where_it_is_opened():
    lanes = Lanes()
    lanes.reads_open(1, LANE, 1000)
    lanes.writes(1, rows=4, position=1500)
    lanes.reads_close(1)
    lanes.reads_open(2, Lane("orders", 3, 18), 2000)

    assert lanes.manager.lanes.standing(2) == LaneStanding(0, 2000, 2000, 2)


@pytest.mark.parametrize(("timestamp", "is_known"), [(7, True), (8, False)])
def test_an_application_is_forgotten_by_the_time_of_an_open(timestamp, is_known):
    """Not by the retention of the member that reads it: members may be configured to different ones."""
    lanes = Lanes(lane_retention_ns=3_000_000)
    lanes.reads_open(1, LANE, 1000, timestamp=0, retention=1)
    lanes.reads_close(1)
    lanes.reads_open(2, Lane("bills", 0, 1), 1100, timestamp=timestamp, retention=7)

    assert (b"orders" in {record.application for record in records(lanes)}) is is_known


def test_a_leader_adds_how_far_time_has_jumped_to_the_retention_that_it_writes():
    leader, reader = Lanes(lanes_max=2, lane_retention_ns=100 * SECOND), Lanes()
    leader.asks(1, LANE)
    leader.manager.close(1, CloseReason.CLIENT_ACTION, LEADING)
    leader.tick(at=101 * SECOND)
    leader.manager.keep_longer(1_000)
    leader.asks(2, Lane("bills", 0, 1))
    leader.asks(3, Lane("bills", 1, 1))
    assert leader.refusal(3)[1] == "lane bills/1: 2 lanes are kept, as many as lanes_max allows"

    principal = leader.manager.sessions[2].encoded_principal
    assert LanePrincipal.decode(principal).retention == 101_000
    for session_id, named, time in (
        (1, LanePrincipal(b"", LANE, 100_000).encode(), 0),
        (2, principal, 101_000),
    ):
        event = SessionOpenEvent(TERM, 9, session_id, time, 102, "channel", named)
        reader.manager.on_replay_session_open(event, 1000 * session_id)
        reader.reads_close(session_id)
    assert [record.application for record in records(reader)] == [b"bills", b"orders"]


def test_a_lane_of_an_application_that_is_to_be_known_is_refused_where_it_is_not():
    lanes = Lanes(lane_retention_ns=100 * SECOND)
    known = Lane("orders", 4, 18, is_known=True)
    lanes.asks(1, known)
    assert lanes.refusal(1) == (
        EventCode.ERROR,
        "unknown: batch 18 of orders is not its first, and no lane of it is known: it has opened none for "
        "longer than lane_retention, or never",
    )
    assert lanes.outside.log == []

    lanes.asks(2, LANE)
    lanes.asks(3, known)
    assert lanes.refusal(3)[0] is EventCode.OK, "one of its lanes is known"
    for session_id in list(lanes.manager.sessions):
        lanes.manager.close(session_id, CloseReason.CLIENT_ACTION, LEADING)
    lanes.tick(at=101 * SECOND)
    lanes.asks(4, Lane("bills", 0, 1))
    lanes.asks(5, known)
    assert lanes.refusal(5)[1].startswith("unknown: "), "it is forgotten"


def test_an_open_forgets_others_and_not_its_own_application():
    """Whose lanes are known as long as nobody else has opened one."""
    lanes = Lanes()
    lanes.reads_open(1, LANE, 1000, timestamp=0)
    lanes.writes(1, rows=4, position=1500)
    lanes.reads_close(1)
    lanes.reads_open(2, LANE, 2000, timestamp=1000, retention=7)
    assert lanes.manager.lanes.standing(2).rows == 4


def test_a_lane_of_an_application_that_is_to_be_known_waits_while_that_is_not_committed():
    lanes = Lanes()
    lanes.is_committing = False
    lanes.asks(1, LANE)
    lanes.asks(2, Lane("orders", 4, 18, is_known=True))
    assert lanes.outside.log == [("open", 1)]

    lanes.is_committing = True
    lanes.tick()
    lanes.tick()

    assert lanes.outside.log == [("open", 1), ("open", 2)]


@pytest.mark.parametrize("is_loaded", [False, True])
def test_of_several_applications_each_is_kept_by_its_own_last_open(is_loaded):
    lanes = Lanes()
    for session_id, application, timestamp in ((1, "a", 1), (2, "b", 2), (3, "a", 9)):
        lanes.reads_open(session_id, Lane(application, 0, session_id), 1000 * session_id, timestamp)
        lanes.reads_close(session_id)
    if is_loaded:
        found, lanes = records(lanes), Lanes()
        lanes.manager.lanes.load(found, 4000)

    lanes.reads_open(4, Lane("c", 0, 1), 5000, timestamp=10, retention=5)

    assert [record.application for record in records(lanes)] == [b"a", b"c"]
    assert len(lanes.manager.lanes) == 2


def test_an_application_is_kept_by_the_last_open_of_it():
    lanes = Lanes()
    for session_id, timestamp in ((1, 1), (2, 5)):
        lanes.reads_open(session_id, LANE, 1000, timestamp=timestamp)
        lanes.reads_close(session_id)
    lanes.reads_open(3, Lane("bills", 0, 1), 1100, timestamp=12, retention=7)

    assert [record.application for record in records(lanes)] == [b"bills", b"orders"]


def test_a_close_frees_no_lane_that_another_session_holds_by_then():
    lanes = Lanes()
    lanes.reads_open(1, LANE, 1000)
    lanes.reads_open(2, LANE, 1100)
    lanes.writes(1, rows=4, position=1500)
    lanes.reads_close(1)

    assert lanes.manager.lanes.holder_ids(LANE) == [2]
    assert lanes.manager.lanes.standing(2).rows == 0


def test_an_application_that_a_session_holds_is_not_forgotten():
    lanes = Lanes()
    lanes.reads_open(1, LANE, 1000, timestamp=0)
    lanes.reads_open(2, Lane("bills", 0, 1), 1100, timestamp=1000, retention=7)

    assert len(lanes.manager.lanes) == 2


@pytest.mark.conformance("S-191")
def test_a_table_that_begins_from_a_snapshot_goes_on_as_the_one_that_took_it():
    one, other = (Lanes() for _ in range(2))
    one.reads_open(1, Lane("bills", 0, 1), 900, timestamp=10, principal=b"bob")
    one.reads_close(1)
    one.reads_open(2, LANE, 1000, timestamp=20, principal=b"alice")
    one.writes(2, rows=4, position=1500)
    other.manager.table.open(2)
    other.manager.sessions[2] = one.manager.sessions[2]
    other.manager.lanes.load(records(one), 2000)
    other.writes(2, rows=4, position=1500)
    for lanes in (one, other):
        lanes.reads_close(2)
        lanes.reads_open(3, LANE, 2100, timestamp=61, principal=b"alice", retention=50)

    assert records(one) == records(other)
    assert [record.application for record in records(one)] == [b"orders"]
    assert records(one)[0].rows == 4


def test_positions_of_another_log_are_cut_at_the_snapshot():
    lanes = Lanes()
    lanes.reads_open(1, LANE, 1000)
    seeded = Lanes()
    seeded.manager.lanes.load(records(lanes), 640)

    assert seeded.manager.lanes.standing(1) == LaneStanding(0, 640, 640, 1)


def test_a_resumed_client_is_judged_by_its_principal_without_the_lane():
    class Strict(Watching):
        def may_resume(self, encoded_principal, encoded_credentials, now_ms, certificate_name):
            return encoded_principal == b"alice"

    lanes = Lanes(authenticator=Strict(lambda session: session.authenticate(session.encoded_credentials)))
    lanes.asks(1, LANE, b"alice")

    assert lanes.finds(1) is not None
    assert LanePrincipal.decode(lanes.manager.sessions[1].encoded_principal).principal == b"alice"
