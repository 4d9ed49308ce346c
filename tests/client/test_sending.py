"""Sending, hearing and staying alive."""

import struct

import numpy as np
import pyarrow as pa
import pytest

from cluster.client import ClientState, ControlledAction, Offer
from cluster.errors import ClientClosed, ClusterError, LocalProtocolError, TimedOut
from cluster.protocol import link
from cluster.protocol.enums import AdminRequestType, AdminResponseCode, EventCode
from cluster.protocol.frame import frame
from cluster.protocol.session import (
    AdminRequest,
    AdminResponse,
    SessionCloseRequest,
    SessionKeepAlive,
    SessionMessageHeader,
)
from cluster.transport.message_frames import link_frame
from tests.client.scripted import Listener, connect, poll_until


@pytest.mark.conformance("S-30", "S-31")
def test_a_message_goes_out_behind_the_header_of_its_session_and_term(cluster):
    client = connect(cluster)

    assert client.offer(b"payload") > 0

    (header,) = cluster.leader.of_type(SessionMessageHeader)
    assert (header.leadership_term_id, header.cluster_session_id, header.timestamp) == (1, 7, 0)
    assert cluster.log == [b"payload"]


@pytest.mark.parametrize(
    "payloads",
    [
        [b"one", b"", b"three" * 40],
        (b"one", b"", b"three" * 40),
        pa.array([b"one", b"", b"three" * 40], pa.binary()),
        pa.array(["one", "", "three" * 40], pa.large_string()),
        pa.array([b"zero", b"one", b"", b"three" * 40]).slice(1),
        pa.chunked_array([[b"one"], [b"", b"three" * 40]], pa.binary()),
        (np.frombuffer(b"one" + b"three" * 40, np.uint8), np.array([0, 3, 3]), np.array([3, 0, 200])),
    ],
)
def test_a_batch_goes_out_in_order_whatever_holds_it(cluster, payloads):
    client = connect(cluster)

    assert client.offer_batch(payloads) > 0

    assert cluster.log == [b"one", b"", b"three" * 40]
    assert client.offered == 3


def test_a_batch_of_nothing_is_taken(cluster):
    client = connect(cluster)

    assert client.offer_batch([]) > 0
    assert client.offer_batch(pa.array([], pa.binary())) > 0
    assert client.offered == 0


def test_positions_grow_with_each_message(cluster):
    client = connect(cluster)

    positions = [client.offer(b"x"), client.offer_batch([b"y", b"z"]), client.offer(b"")]

    assert positions == sorted(set(positions))


@pytest.mark.conformance("S-33")
def test_a_message_above_the_maximum_is_an_error_that_names_both_lengths(cluster):
    client = connect(cluster)
    client.offer(bytes(992))

    with pytest.raises(LocalProtocolError, match=r"993 bytes.*at most 992"):
        client.offer(bytes(993))
    with pytest.raises(LocalProtocolError, match=r"message 1 has 5000 bytes.*at most 992"):
        client.offer_batch([b"", bytes(5000)])
    assert client.offered == 1


def test_a_null_in_an_array_is_an_error(cluster):
    with pytest.raises(LocalProtocolError, match="1 of 2 values are null"):
        connect(cluster).offer_batch(pa.array([b"x", None]))


def test_what_is_not_acknowledged_is_bounded_and_pushes_back(cluster):
    client = connect(cluster, window_bytes=4096)
    taken = 0
    while client.offer(bytes(100)) > 0:
        taken += 1

    assert client.offer(bytes(100)) == Offer.BACK_PRESSURED
    assert client.offer_batch([bytes(100)] * 20) == Offer.BACK_PRESSURED
    assert taken == len(cluster.log)
    cluster.acknowledge(taken)
    assert client.offer(bytes(100)) == Offer.BACK_PRESSURED  # this one hears the acknowledgement
    assert client.offer(bytes(100)) > 0


def test_a_batch_larger_than_the_window_is_taken_when_nothing_else_waits(cluster):
    client = connect(cluster, window_bytes=4096)

    assert client.offer_batch([bytes(100)] * 1000) > 0
    assert client.offer(b"") == Offer.BACK_PRESSURED
    assert len(cluster.log) == 1000


def test_a_wait_says_whether_something_is_due(cluster, monkeypatch):
    client, dues = connect(cluster), []
    monkeypatch.setattr(cluster, "wait", lambda timeout_s, *, is_due=False: dues.append(is_due))

    client.wait(0)
    client.offer(b"x")
    client.wait(0)
    cluster.acknowledge(1)
    client.poll_egress()
    client.wait(0)

    assert dues == [False, True, False]


def test_half_a_frame_that_the_socket_took_is_finished_before_anything_else(cluster):
    client = connect(cluster, keep_alive_interval_s=1.0)
    connection = cluster.leader.connection
    connection.takes = 150

    client.offer_batch([b"a" * 100, b"b" * 100])
    cluster.wait(2.0)
    client.poll_egress()
    assert cluster.log == []
    assert not client.send_admin_request_to_take_a_snapshot(1)
    connection.takes = None
    client.poll_egress()

    assert cluster.log == [b"a" * 100, b"b" * 100]
    assert [type(m) for m in cluster.leader.received[-2:]] == [SessionMessageHeader] * 2


def test_acknowledgements_tell_how_many_messages_are_committed_and_where(cluster):
    client = connect(cluster)
    client.offer_batch([b"x"] * 5)

    cluster.acknowledge(3, position=640)
    client.poll_egress()
    assert (client.offered, client.acknowledged, client.committed_position) == (5, 3, 640)
    cluster.acknowledge(5, position=960)
    assert client.await_committed(timeout_s=1) == 960


def test_waiting_for_commits_ends_with_how_many_are_missing(cluster):
    client = connect(cluster)
    client.offer_batch([b"x"] * 5)
    cluster.acknowledge(3)

    with pytest.raises(TimedOut, match=r"2 of 5 messages are not committed after 0\.5 s"):
        client.await_committed(timeout_s=0.5)


def test_who_waits_for_commits_does_not_wait_for_what_others_offer_meanwhile(cluster):
    """Else it never ends under a load that does not (vertexium 400, librdkafka 2006)."""
    client = connect(cluster)
    client.offer_batch([b"1", b"2"])
    wait = client.commit_wait()
    client.offer(b"of another thread")
    assert not wait.is_over()
    cluster.acknowledge(2, position=640)
    client.poll_egress()

    assert wait.is_over() and wait.position == 640
    assert not client.commit_wait().is_over()


@pytest.mark.parametrize("whole", [0, 1, 2])
def test_an_acknowledgement_of_what_was_not_sent_ends_the_connection_and_the_session_goes_on(cluster, whole):
    client = connect(cluster)
    first = cluster.leader.connection
    first.takes = 96 * whole + 40  # so many whole messages, and the begin of another
    client.offer_batch([b"one", b"two", b"three"])
    cluster.acknowledge(whole)
    client.poll_egress()
    assert (client.acknowledged, first.is_closed) == (whole, False)

    cluster.acknowledge(whole + 1)
    client.poll_egress()

    assert first.is_closed
    assert first.why_closed == (
        f"leader 0 acknowledges {whole + 1} messages; expected at most {whole}, which were sent to it"
    )
    assert not first.has_frames, "they would be heard again and again"
    poll_until(client, lambda: client.state is ClientState.CONNECTED)
    assert cluster.log == [b"one", b"two", b"three"]


@pytest.mark.conformance("S-36")
def test_the_keep_alive_helper_tries_three_times(cluster):
    client = connect(cluster)
    tries = []
    cluster.leader.connection.offer = lambda *buffers: tries.append(1) or Offer.BACK_PRESSURED

    assert client.send_keep_alive() is False
    assert len(tries) == 3


@pytest.mark.conformance("S-37")
def test_without_an_interval_no_keep_alive_goes_out_by_itself(cluster):
    client = connect(cluster, keep_alive_interval_s=None)
    for _ in range(10):
        cluster.wait(5)
        client.poll_egress()

    assert cluster.leader.of_type(SessionKeepAlive) == []
    assert client.send_keep_alive() is True
    assert cluster.leader.of_type(SessionKeepAlive) == [SessionKeepAlive(1, 7)]


def test_a_client_that_is_polled_keeps_its_session_alive_once_an_idle_second(cluster):
    client = connect(cluster)
    for _ in range(50):
        cluster.wait(0.1)
        client.poll_egress()

    assert 4 <= len(cluster.leader.of_type(SessionKeepAlive)) <= 5


def test_egress_reaches_a_plain_callable(cluster):
    told = []
    client = connect(cluster, lambda *message: told.append((*message[:2], bytes(message[2]))))
    cluster.answer(b"one", b"", timestamp=42)

    assert client.poll_egress() == 2
    assert told == [(7, 42, b"one"), (7, 42, b"")]


@pytest.mark.conformance("S-43")
def test_egress_of_another_session_is_passed_over(cluster):
    listener = Listener()
    client = connect(cluster, listener)
    cluster.answer(b"ours")
    cluster.answer(b"theirs", session_id=8)
    cluster.answer(b"ours too")
    client.poll_egress()

    assert listener.payloads == [b"ours", b"ours too"]


@pytest.mark.conformance("S-44")
def test_a_large_message_reaches_the_listener_whole(cluster):
    listener = Listener()
    client = connect(cluster, listener)
    cluster.answer(b"x" * 3_000_000)
    client.poll_egress()

    assert listener.payloads == [b"x" * 3_000_000]


@pytest.mark.conformance("S-50")
def test_a_poll_with_a_limit_dispatches_no_more_and_the_next_goes_on(cluster):
    listener = Listener()
    client = connect(cluster, listener)
    payloads = [bytes([n]) for n in range(25)]
    cluster.answer(*payloads)
    assert client.poll_egress() == 25
    listener.told.clear()
    cluster.answer(*payloads)

    assert [client.poll_egress(fragment_limit=10) for _ in range(4)] == [10, 10, 5, 0]
    assert listener.payloads == payloads


def test_a_batch_listener_gets_columns_over_one_buffer(cluster):
    batches = []

    class BatchListener:
        def on_messages(self, batch):
            batches.append(
                (batch.timestamps.tolist(), [bytes(batch.payload(row)) for row in range(len(batch))])
            )

    client = connect(cluster, BatchListener())
    cluster.answer(b"one", b"two", timestamp=5)
    cluster.acknowledge(0)
    cluster.answer(b"three", timestamp=6)
    client.poll_egress()

    assert batches == [([5, 5, 6], [b"one", b"two", b"three"])], "an acknowledgement is no end of a batch"


def test_a_listener_that_raises_loses_no_message(cluster):
    heard = []

    def listener(session_id, timestamp, payload):
        heard.append(bytes(payload))
        if heard == [b"1", b"2"]:
            raise KeyError("the application's own")

    client = connect(cluster, listener)
    cluster.answer(b"1", b"2", b"3")

    with pytest.raises(KeyError):
        client.poll_egress()
    client.poll_egress()
    assert heard == [b"1", b"2", b"3"]


@pytest.mark.conformance("S-47")
def test_a_listener_that_breaks_off_gets_the_next_message_with_the_next_poll(cluster):
    heard = []

    def listener(session_id, timestamp, payload):
        heard.append(bytes(payload))
        return ControlledAction.BREAK if payload == b"2" else None

    client = connect(cluster, listener)
    cluster.answer(b"1", b"2", b"3")
    cluster.acknowledge(0)

    assert client.poll_egress() == 2
    assert heard == [b"1", b"2"]
    client.poll_egress()
    assert heard == [b"1", b"2", b"3"]


@pytest.mark.conformance("S-47")
def test_a_message_that_a_listener_aborts_comes_again(cluster):
    heard = []

    def listener(session_id, timestamp, payload):
        heard.append(bytes(payload))
        return ControlledAction.ABORT if len(heard) in (1, 3) else ControlledAction.COMMIT

    client = connect(cluster, listener)
    cluster.answer(b"1", b"2")
    for _ in range(4):
        client.poll_egress()

    assert heard == [b"1", b"1", b"2", b"2"]


@pytest.mark.conformance("S-46")
def test_a_foreign_schema_goes_to_who_listens_for_it_and_is_an_error_otherwise(cluster):
    told = []

    class Extension:
        def on_message(self, *message):
            told.append(bytes(message[2]))

        def on_extension_message(self, schema_id, template_id, message):
            told.append((schema_id, template_id, bytes(message[8:])))

    foreign = frame(struct.pack("<HHHH", 4, 3, 999, 1) + b"body", session_id=0, stream_id=102)
    client = connect(cluster, Extension())
    cluster.leader.connection.put(foreign)
    cluster.answer(b"after it")
    client.poll_egress()
    assert told == [(999, 3, b"body"), b"after it"]

    client = connect(cluster, lambda *message: told.append(bytes(message[2])))
    cluster.leader.connection.put(foreign)
    cluster.answer(b"after it")
    with pytest.raises(ClusterError, match="template 3 of schema 999"):
        client.poll_egress()
    client.poll_egress()
    assert told[2:] == [b"after it"]


def test_a_listener_may_offer(cluster):
    client = connect(cluster, lambda session_id, timestamp, payload: client.offer(b"re: " + payload))
    cluster.answer(b"1", b"2")
    client.poll_egress()

    assert cluster.log == [b"re: 1", b"re: 2"]


def test_a_listener_that_polls_is_told_that_it_may_not(cluster):
    client = connect(cluster, lambda *told: client.poll_egress())
    cluster.answer(b"1")
    with pytest.raises(LocalProtocolError, match="poll_egress within the listener"):
        client.poll_egress()

    assert client.offer(b"goes on") > 0


def test_who_only_offers_still_hears_what_is_committed(cluster):
    client = connect(cluster, window_bytes=1 << 20)
    for _ in range(20_000):
        assert client.offer(bytes(100)) > 0
        cluster.acknowledge(len(cluster.log))

    assert client.acknowledged > 10_000


@pytest.mark.conformance("S-67")
def test_a_closed_event_closes_the_client_at_the_poll_after_it(cluster):
    listener = Listener()
    client = connect(cluster, listener)
    cluster.leader.send(
        cluster.leader.connection, cluster.event(EventCode.CLOSED, 0, "TIMEOUT", session_id=7)
    )
    other = cluster.event(EventCode.CLOSED, 0, "not yours", session_id=8)
    cluster.leader.send(cluster.leader.connection, other)

    client.poll_egress()
    assert client.state in (ClientState.PENDING_CLOSE, ClientState.CLOSED)
    assert listener.told == [("session event", 0, 7, 1, 0, EventCode.CLOSED, "TIMEOUT")]
    with pytest.raises(ClientClosed, match="session 7 is closed: TIMEOUT"):
        client.poll_egress()
    assert client.is_closed
    assert client.why_closed == "TIMEOUT"
    assert cluster.is_released


@pytest.mark.conformance("S-68")
def test_a_closed_client_says_so_whatever_it_is_asked(cluster):
    client = connect(cluster)
    client.close()
    client.close()

    assert client.offer(b"x") == Offer.CLOSED
    assert client.offer_batch([b"x"]) == Offer.CLOSED
    assert client.send_keep_alive() is False
    for ask in (client.poll_egress, lambda: client.wait(0)):
        with pytest.raises(ClientClosed, match="session 7 is closed: closed by the client"):
            ask()


def test_a_loop_that_only_polls_and_waits_for_an_answer_ends_with_the_session(cluster):
    listener = Listener()
    client = connect(cluster, listener)
    client.offer(b"x")
    cluster.leader.send(
        cluster.leader.connection, cluster.event(EventCode.CLOSED, 0, "SERVICE_ACTION", session_id=7)
    )

    with pytest.raises(ClientClosed, match="session 7 is closed: SERVICE_ACTION"):
        while not listener.payloads:
            client.poll_egress()
            client.wait(0.1)


def test_committed_messages_are_no_error_after_the_session_and_others_are(cluster):
    client = connect(cluster)
    client.offer(b"x")
    cluster.acknowledge(1)
    client.poll_egress()
    client.close()
    assert client.await_committed() == 4096

    other = connect(cluster)
    other.offer(b"y")
    other.close()
    with pytest.raises(ClientClosed, match=r"closed by the client\) with 1 of 1 messages"):
        other.await_committed()


@pytest.mark.conformance("S-62")
def test_closing_sends_what_waits_and_asks_the_cluster_to_close_the_session(cluster):
    with connect(cluster) as client:
        client.offer_batch([b"x"] * 3)

    assert cluster.log == [b"x"] * 3
    assert cluster.leader.received[-1] == SessionCloseRequest(1, 7)
    assert cluster.leader.connection.is_closed


def test_waiting_on_a_session_that_ends_is_an_error_that_tells_why(cluster):
    client = connect(cluster)
    client.offer(b"x")
    cluster.leader.send(
        cluster.leader.connection, cluster.event(EventCode.CLOSED, 0, "SERVICE_ACTION", session_id=7)
    )

    with pytest.raises(ClientClosed, match=r"SERVICE_ACTION.*1 of 1 messages"):
        client.await_committed(timeout_s=1)


@pytest.mark.conformance("S-69", "S-70")
def test_an_admin_request_is_answered_to_the_listener(cluster):
    listener = Listener()
    client = connect(cluster, listener)

    assert client.send_admin_request_to_take_a_snapshot(11)
    assert cluster.leader.of_type(AdminRequest) == [AdminRequest(1, 7, 11, AdminRequestType.SNAPSHOT)]
    cluster.leader.send(
        cluster.leader.connection,
        AdminResponse(7, 11, AdminRequestType.SNAPSHOT, AdminResponseCode.UNAUTHORISED_ACCESS, "no"),
    )
    client.poll_egress()

    kind, *told = listener.told[0]
    assert kind == "admin response"
    assert told == [7, 11, AdminRequestType.SNAPSHOT, AdminResponseCode.UNAUTHORISED_ACCESS, "no", b""]


def test_messages_of_other_streams_and_unknown_templates_are_passed_over(cluster):
    listener = Listener()
    client = connect(cluster, listener)
    cluster.leader.connection.put(link_frame(link.StatusRequest(1)))
    cluster.leader.send(cluster.leader.connection, SessionKeepAlive(1, 7), stream_id=77)
    cluster.answer(b"after them")
    poll_until(client, lambda: listener.payloads == [b"after them"])
