"""What passes between a container and its consensus module (points S-99 to S-126)."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from cluster.errors import (
    AgentTermination,
    ClusterError,
    LocalProtocolError,
    LogDamaged,
    RemoteProtocolError,
    ServiceError,
)
from cluster.protocol import decode, streams
from cluster.protocol.enums import ClusterAction, ClusterTimeUnit, Role, SnapshotMark
from cluster.protocol.link import ServiceSnapshot
from cluster.protocol.log import MembershipChangeEvent
from cluster.protocol.service import JoinLog, ServiceAck
from cluster.protocol.session import SessionMessageHeader
from cluster.protocol.snapshot import SnapshotMarker
from cluster.service.agent import ClusteredServiceAgent
from cluster.service.callbacks import Callbacks
from cluster.service.channel import RecoveryState, ServiceChannel
from cluster.service.clustered_service import ClusteredService
from cluster.service.service_context import ServiceContext
from tests.service.harness import LIVE, Container, Recorder, a_follower, a_leader


def ack(position: int, ack_id: int, relevant_id: int = -1, timestamp: int = 0) -> ServiceAck:
    return ServiceAck(
        log_position=position, timestamp=timestamp, ack_id=ack_id, relevant_id=relevant_id, service_id=0
    )


def test_nothing_happens_before_the_module_tells_where_to_start():
    container = Container(service := Recorder())
    assert container.turn(3) == 0
    assert service.calls == []


@pytest.mark.conformance("S-99")
def test_the_first_ack_has_id_0_the_recovery_position_and_the_client_id():
    container = Container(Recorder()).start()
    assert container.sent == [ack(position=0, ack_id=0, relevant_id=5)]


@pytest.mark.conformance("S-100")
def test_a_start_that_fails_is_acked_with_minus_1_and_ends_the_agent():
    service = Recorder()
    service.do["on_start"] = lambda *_: 1 / 0
    container = Container(service)
    with pytest.raises(AgentTermination, match="failed to start: division by zero"):
        container.start()

    assert container.sent == [ack(position=0, ack_id=0, relevant_id=-1)]
    assert container.agent.is_closed
    assert container.turn() == 0


def test_a_snapshot_that_is_not_there_fails_the_start():
    container = Container(Recorder(), archive=NoSnapshots())
    container.channel.recovery = RecoveryState(3, 640, 0, (17,))
    with pytest.raises(AgentTermination, match="service 0 failed to start: recording 17 is not there"):
        container.turn()
    assert container.acks[0].relevant_id == -1


class NoSnapshots:
    def open(self, recording_id):
        raise LogDamaged(None, None, f"recording {recording_id} is not there")


@pytest.mark.conformance("S-101", "C-124")
def test_each_join_is_answered_by_one_ack_with_the_next_id_and_the_join_position():
    container = Container(Recorder()).start()
    container.join(max_position=0).settle()
    container.join(member_id=2).settle()
    container.log.term(timestamp=40)
    end = container.commit().log.end
    container.join(Role.FOLLOWER, position=end).settle()

    assert container.acks[1:] == [ack(0, 1), ack(0, 2), ack(end, 3, timestamp=40)]
    assert container.agent.state.member_id == 0


@pytest.mark.conformance("S-102", "C-123")
def test_a_join_elsewhere_than_where_the_service_is_raises():
    container = a_leader(Recorder())
    position = container.log.end
    container.channel.close_log(position)
    with pytest.raises(ClusterError, match=rf"at position {position - 32}: service 0 is at {position}"):
        container.join(position=position - 32).settle()
    assert len(container.acks) == 2


@pytest.mark.conformance("S-103", "C-121", "C-122")
def test_a_log_is_joined_only_when_the_one_before_is_drained_to_the_new_start():
    container = a_leader(service := Recorder(), log_fragment_limit=1)
    start = [container.log.timer(i) for i in range(4)][2]
    container.commit_position = container.log.end
    container.join(Role.FOLLOWER, position=start)

    container.turn()
    assert len(container.acks) == 2
    container.settle()
    assert container.acks[2] == ack(start, 2)
    assert [call[1] for call in service.calls if call[0] == "on_timer_event"] == [0, 1, 2, 3]
    names = service.names
    assert names.index("on_role_change", 3) == len(names) - 2, "the last timer comes in the new log"


@pytest.mark.conformance("S-107")
def test_nothing_above_the_commit_position_is_ever_delivered():
    container = a_leader(service := Recorder())
    ends = [container.log.timer(i) for i in range(20)]
    seen = 0
    for seen, end in enumerate(ends, 1):
        container.commit(end)
        assert service.names.count("on_timer_event") == seen
        assert service.cluster.log_position() == end
    assert seen == 20


@pytest.mark.conformance("S-107")
def test_a_replay_ends_at_its_stop_position_whatever_is_committed():
    container = Container(service := Recorder()).start()
    container.log.term()
    stop = container.log.timer(1)
    container.log.timer(2)
    container.join(Role.FOLLOWER, max_position=stop).commit()

    assert service.names[-1] == "on_timer_event"
    assert service.calls[-1][1] == 1
    assert container.agent.joined_position == stop


@pytest.mark.conformance("S-108")
@pytest.mark.parametrize("is_vectorised", [True, False])
def test_one_poll_delivers_at_most_the_fragment_limit(is_vectorised):
    counts = []

    class Counting(ClusteredService):
        if is_vectorised:

            def on_session_messages(self, batch):
                counts.append(len(batch))

        else:

            def on_session_message(self, session, timestamp, buffer):
                counts[-1] += 1

    container = a_leader(Counting(), log_fragment_limit=50)
    for _ in range(120):
        container.log.message(1, b"")
    container.commit_position = container.log.end
    for _ in range(3):
        if not is_vectorised:
            counts.append(0)
        assert container.turn() <= 50
    assert counts == [50, 50, 20]


@pytest.mark.conformance("S-109")
@pytest.mark.parametrize("length", [1_300, 1_400, 5_000, 8_000])
@pytest.mark.parametrize("log_read_bytes", [2_048, 1 << 20])
def test_fragmented_messages_are_delivered_whole_at_the_end_of_their_last_fragment(length, log_read_bytes):
    container = a_leader(service := Recorder(), log_read_bytes=log_read_bytes, max_message_length=8_192)
    payload = np.random.default_rng(length).bytes(length)
    ends = [container.log.message(1, payload) for _ in range(60)]  # some behind the end of a term
    positions = []
    service.do["on_session_message"] = lambda *_: positions.append(service.cluster.log_position())
    container.commit()

    assert [call[3] for call in service.calls[3:]] == [payload] * 60
    assert positions == ends
    assert container.log.end > 64 * 1024


@pytest.mark.conformance("S-109")
def test_a_message_that_is_committed_in_part_is_delivered_when_its_rest_is_even_from_another_log():
    container = a_follower(service := Recorder())
    begin = container.log.end
    end = container.log.message(1, b"m" * 3_000)
    container.commit(begin + 1_408)
    assert "on_session_message" not in service.names

    container.channel.close_log(container.commit_position)
    container.join(Role.FOLLOWER, position=begin + 1_408).settle()
    assert container.acks[-1].log_position == begin + 1_408
    container.commit(end)
    assert service.calls[-1][3] == b"m" * 3_000


@pytest.mark.conformance("S-109")
def test_of_a_message_whose_end_a_new_leader_cut_off_nothing_is_delivered():
    container = a_follower(service := Recorder())
    begin = container.log.end
    container.log.message(1, b"m" * 3_000)
    container.log.end = begin + 1_408
    container.log.term()
    container.log.message(1, b"after")
    container.commit(begin + 1_408)
    container.commit()

    assert service.names[-2:] == ["on_new_leadership_term_event", "on_session_message"]
    assert service.calls[-1][3] == b"after"


@pytest.mark.conformance("S-110")
def test_an_unknown_schema_in_the_log_raises_and_the_log_goes_on():
    container = a_leader(service := Recorder())
    foreign = bytearray(SessionMessageHeader(1, 1, 1).encode())
    foreign[4:6] = (999).to_bytes(2, "little")
    container.log.append(bytes(foreign))
    container.log.timer(1)
    with pytest.raises(RemoteProtocolError):
        container.commit()
    container.settle()
    assert service.names[-1] == "on_timer_event"


@pytest.mark.conformance("S-110")
def test_membership_changes_of_old_logs_are_ignored():
    container = a_leader(service := Recorder())
    calls = list(service.calls)
    container.log.append(MembershipChangeEvent(0, 0, 0, 0, 3, 0, 0, "members").encode())
    container.commit()
    assert service.calls == calls


@pytest.mark.conformance("S-111")
@pytest.mark.parametrize("is_vectorised", [True, False])
def test_an_exception_of_a_callback_comes_out_and_the_log_goes_on_behind_its_event(is_vectorised):
    service = Recorder()

    def fail(*_):
        if len(service.calls) == 4:
            raise ValueError("boom")

    if is_vectorised:
        Vectorised = type(
            "Vectorised",
            (Recorder,),
            {"on_session_messages": lambda self, batch: self._note("on_session_messages", len(batch))},
        )
        service = Vectorised()
    service.do["on_session_messages" if is_vectorised else "on_session_message"] = fail
    container = a_leader(service)
    container.log.message(1, b"a")
    if not is_vectorised:
        container.log.message(1, b"b")
    container.log.timer(1)
    with pytest.raises(ServiceError, match="boom"):
        container.commit()
    container.settle()

    tail = [call[0] if is_vectorised else call[-1] for call in service.calls[3:]]
    assert tail == (["on_session_messages", "on_timer_event"] if is_vectorised else [b"a", b"b", 0])


def test_a_session_that_opens_twice_raises_and_one_that_closes_unknown_too():
    container = a_leader(service := Recorder())
    container.log.opened(1)
    container.log.opened(1)
    with pytest.raises(ClusterError, match="opens session 1 at"):
        container.commit()
    container.log.closed(2)
    with pytest.raises(ClusterError, match="unknown session 2"):
        container.commit()
    assert service.names.count("on_session_open") == 1
    assert "on_session_close" not in service.names


@pytest.mark.conformance("S-113")
def test_a_snapshot_of_standby_nodes_is_none_of_a_services_business():
    container = a_leader(Recorder())
    container.log.action(ClusterAction.SNAPSHOT, flags=1)
    container.log.action(ClusterAction.SUSPEND)
    container.log.action(ClusterAction.RESUME)
    container.commit()
    assert len(container.acks) == 2


@pytest.mark.conformance("S-115")
def test_a_snapshot_that_is_not_taken_is_acked_with_minus_1_and_reported():
    container = a_leader(Recorder())
    end = container.log.action(ClusterAction.SNAPSHOT)
    with pytest.raises(ClusterError, match="took no snapshot at position"):
        container.commit()
    assert container.acks[2:] == [ack(end, 2, relevant_id=-1)]


@pytest.mark.conformance("S-122")
def test_service_ids_are_0_to_9():
    for service_id in range(10):
        ClusteredServiceAgent(Recorder(), ServiceChannel(), lambda: 0, ServiceContext(service_id))
    with pytest.raises(AssertionError):
        ServiceContext(service_id=10)


@pytest.mark.conformance("S-122")
def test_a_service_gives_its_id_with_its_acks_and_its_messages():
    container = a_leader(service := Recorder(), service_id=3)
    service.do["on_timer_event"] = lambda *_: service.cluster.offer(b"to all ", b"of us")
    container.log.timer(1, timestamp=66)
    container.commit()

    assert {ack.service_id for ack in container.acks} == {3}
    header, payload = container.sent[-1]
    assert (header.leadership_term_id, header.cluster_session_id, header.timestamp) == (0, 3, 66)
    assert payload == b"to all of us"


@pytest.mark.conformance("S-125")
def test_a_termination_is_carried_out_when_its_position_is_reached_and_acked_when_asked():
    for is_ack_required in (True, False):
        container = a_leader(service := Recorder())
        end = container.log.timer(1)
        container.terminate_at(end, is_ack_required).turn(2)
        assert not container.agent.is_closed

        container.commit()
        assert service.names[-2:] == ["on_timer_event", "on_terminate"]
        assert container.agent.is_closed
        assert container.acks[2:] == ([ack(end, 2)] if is_ack_required else [])


def test_a_termination_position_that_is_passed_already_ends_the_agent_as_unexpected():
    container = a_leader(service := Recorder())
    with pytest.raises(AgentTermination, match="past the termination position 32"):
        container.terminate_at(32).settle()
    assert service.names[-1] == "on_terminate"
    assert container.agent.is_closed


def test_an_ack_that_the_module_asks_for_is_sent_at_its_position():
    container = a_leader(Recorder())
    position = container.log.timer(1)
    container.request_ack_at(position).settle()
    assert len(container.acks) == 2
    container.commit()
    assert container.acks[2:] == [ack(position, 2)]


@pytest.mark.conformance("S-118")
def test_a_log_of_another_major_version_ends_the_service():
    container = a_leader(service := Recorder())
    container.log.term(app_version=1 << 16)
    with pytest.raises(AgentTermination, match=r"has app version 0\.0\.1, the log at \d+ has 1\.0\.0"):
        container.commit()
    assert container.agent.is_closed
    assert service.names.count("on_new_leadership_term_event") == 1


def test_no_more_log_is_read_while_answers_wait_for_the_module():
    container = a_leader(service := Recorder())
    service.do["on_session_message"] = lambda session, *_: session.offer(b"x")
    container.log.opened(1)
    container.log.message(1, b"a")
    container.commit_position = container.log.end
    container.agent.do_work(0, 0)
    container.log.message(1, b"b")
    container.commit_position = container.log.end
    assert container.agent.do_work(0, 0) == 0

    container.channel.poll_egress()
    assert container.agent.do_work(0, 0) > 0


def test_what_a_service_must_not_be_sent_is_told_apart():
    container = a_leader(Recorder())
    container.channel.send_to_service(ack(0, 0).encode())
    with pytest.raises(LocalProtocolError, match="sent ServiceAck"):
        container.turn()


def test_damaged_log_bytes_end_the_service_rather_than_loop():
    container = a_leader(Recorder())
    begin = container.log.end
    container.log.append_raw((16).to_bytes(4, "little") + bytes(60))
    with pytest.raises(LogDamaged, match=f"damaged at position {begin}"):
        container.commit()


def test_the_channel_keeps_the_order_of_what_it_is_given():
    channel = ServiceChannel()
    channel.send_to_service(b"a")
    channel.join_log(JoinLog(0, LIVE, 0, 0, 0, False, 0).encode(), log := object())
    channel.close_log(5)
    assert channel.poll_service() == b"a"
    assert channel.poll_service().log is log
    assert channel.poll_service().position == 5
    assert channel.poll_service() is None


# ---- snapshots


class HeldSnapshots:
    """Snapshots as lists of messages, in memory."""

    def __init__(self, *held):
        self.held = dict(enumerate(held))
        self.discarded = []

    def create(self, stream_id, service_id, log_position):
        self.place = stream_id, service_id, log_position
        recording_id = len(self.held)
        return SimpleNamespace(
            offer=self.held.setdefault(recording_id, []).append,
            recording_id=recording_id,
            position=320,
            checksum=99,
        )

    def complete(self, publication):
        return publication.recording_id

    def discard(self, recording_id):
        self.discarded.append(recording_id)

    def open(self, recording_id):
        records = iter(self.held[recording_id])
        return SimpleNamespace(next_message=lambda: next(records, None), rest=records)


@pytest.mark.conformance("S-112", "S-114", "S-115")
def test_a_snapshot_holds_begin_the_sessions_by_id_end_and_what_the_service_writes():
    snapshots = HeldSnapshots()
    container = a_leader(service := Recorder(), archive=snapshots)
    service.on_take_snapshot = lambda publication: publication.offer(b"the state")
    container.log.opened(7, principal=b"bob")
    container.log.opened(3)
    end = container.log.action(ClusterAction.SNAPSHOT)
    container.commit()

    begin, three, seven, last = map(decode, snapshots.held[0][:-1])
    assert snapshots.held[0][-1] == b"the state"
    assert (begin.type_id, begin.mark, begin.log_position) == (2, SnapshotMark.BEGIN, end)
    assert last == begin.replace(mark=SnapshotMark.END)
    assert (three.cluster_session_id, seven.cluster_session_id) == (3, 7)
    assert (seven.response_channel, bytes(seven.encoded_principal)) == ("channel-7?messages=0", b"bob")
    assert snapshots.place == (streams.SERVICE_SNAPSHOT, 0, end)
    assert container.acks[2:] == [ack(end, 2, relevant_id=0)]


@pytest.mark.parametrize("is_compared", [True, False])
def test_a_service_tells_the_digest_of_its_snapshot_unless_it_asks_not_to_be_compared(is_compared):
    container = a_leader(service := Recorder(), archive=HeldSnapshots(), service_id=3)
    container.agent._callbacks.compares_snapshots = is_compared
    service.on_take_snapshot = lambda publication: setattr(publication, "digest", 77)
    end = container.log.action(ClusterAction.SNAPSHOT)
    container.commit()
    written = ServiceSnapshot(3, end, 0, 320, 99, 77 if is_compared else -1)
    assert container.sent[2:-1] == [written]


def test_a_service_asks_not_to_be_compared_by_an_attribute():
    class Different(ClusteredService):
        compares_snapshots = False

    services = [Different(), Recorder()]
    assert [Callbacks(service, 0, lambda: 0).compares_snapshots for service in services] == [False, True]


@pytest.mark.conformance("S-74", "S-119")
def test_a_service_starts_with_the_sessions_of_its_snapshot_and_an_image_of_its_own_part():
    taken = HeldSnapshots()
    container = a_leader(service := Recorder(), archive=taken)
    service.on_take_snapshot = lambda publication: publication.offer(b"the state")
    container.log.opened(7, principal=b"bob")
    end = container.log.action(ClusterAction.SNAPSHOT)
    container.commit()

    again = Container(restored := Recorder(), archive=taken)
    read = []
    restored.do["on_start"] = lambda cluster, image: read.extend(image.rest)
    again.channel.recovery = RecoveryState(0, end, 40, (0,))
    again.turn()
    assert read == [b"the state"]
    assert [s.id for s in restored.cluster.client_sessions()] == [7]
    session = restored.cluster.get_client_session(7)
    before = service.cluster.get_client_session(7)
    assert session.encoded_principal == b"bob"
    assert session.response_channel == before.response_channel != ""
    assert session.response_stream_id == before.response_stream_id != 0
    assert (restored.cluster.log_position(), restored.cluster.time()) == (end, 40)
    assert restored.cluster.time_unit() is ClusterTimeUnit.MILLIS
    assert again.acks[0].relevant_id == 5


MARKER = SnapshotMarker(2, 640, 0, 0, SnapshotMark.BEGIN, ClusterTimeUnit.MILLIS, 1)


@pytest.mark.conformance("S-117", "S-118")
@pytest.mark.parametrize(
    ("records", "what"),
    [
        ([MARKER.replace(type_id=1)], "type 1, expected 2"),
        ([MARKER, MARKER], "begins twice"),
        ([MARKER.replace(mark=SnapshotMark.END)], "ends before it begins"),
        ([MARKER], "without an end"),
        ([MARKER.replace(log_position=320), MARKER.replace(log_position=320, mark=SnapshotMark.END)], "320"),
        (
            [MARKER.replace(app_version=1 << 16), MARKER.replace(app_version=1 << 16, mark=SnapshotMark.END)],
            "app version 1.0.0",
        ),
    ],
)
def test_a_snapshot_that_cannot_be_is_refused_with_a_reason(records, what):
    container = Container(Recorder(), archive=HeldSnapshots([r.encode() for r in records]))
    container.channel.recovery = RecoveryState(0, 640, 0, (0,))
    with pytest.raises(AgentTermination, match=what):
        container.turn()
    assert container.acks[0].relevant_id == -1
