"""The calls of a client that it is made of, and in which thread each happens.

The session's states are those of ``session_conductor.py``. Here is what an application calls:

    application    offer, poll_egress, …  ──┐                       ┌── poll_egress ──▶ listener
                                            ├─ turn ▶ conductor ▶ held egress
    client's own   keep-alives, leaders  ───┘

Threads may share a client: calls take turns, and messages are in the log in the order in which their offers
returned. The listener is called by ``poll_egress``, and by offers now and then, in the thread of that call:
never by two threads at once, and never by the client's own thread, which goes on meanwhile.
"""

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Self

from cluster.client.commit_wait import CommitWait
from cluster.client.connecting import SessionOpening
from cluster.client.context import ClientContext
from cluster.client.egress_dispatch import Answer, EgressBatch, LostSession
from cluster.client.gathering import LOOK_S, Gathering
from cluster.client.ingress_publication import World
from cluster.client.payloads import Payloads, as_columns
from cluster.client.requests import Request, Requests
from cluster.client.retained_egress import AnswerQueue, RetainedEgress
from cluster.client.session_conductor import WAIT_S, ClientState, SessionConductor
from cluster.client.standing import ClientStanding, Standing
from cluster.errors import ClientClosed, LocalProtocolError, TimedOut, need
from cluster.protocol.enums import AdminRequestType, CloseReason, Offer
from cluster.protocol.session import AdminRequest
from cluster.service.buffer_claim import BufferClaim, Claimed, check_unused, open_claim
from cluster.service.payload import Payload, check_length, joined

if TYPE_CHECKING:
    from cluster.protocol.token import PositionToken

ALL = 1 << 62  # messages of a poll without a limit
OFFERED_PER_POLL = 256 * 1024  # bytes that may be offered between two polls of egress


class ClientCalls(ClientStanding):
    """The calls of ``ClusterClient`` that do not wait for an outcome."""

    def __init__(self, context: ClientContext, world: World, opening: SessionOpening) -> None:
        """Take over a finished attempt: the session is the client's to close, and so is the world."""
        self._context = context
        self._world = world
        self._retained = RetainedEgress(
            is_for_listener=context.dispatch.hears_messages, is_supervised=context.supervised
        )
        self._requests = Requests()
        self._resting = 0  # threads
        self._session = SessionConductor(context, world, opening, self._retained, self._requests)
        self._gathering = Gathering(world)
        self._standing = Standing(self._session, opening.lane_standing)
        self._turn = threading.RLock()  # of who changes the session
        self._delivery = threading.Lock()  # of who calls the listener; taken before the turn, never within
        self._deliverer: int | None = None  # its thread
        self._poll_at = OFFERED_PER_POLL
        self._token: PositionToken | None = None  # the last that was wanted
        self._report_end: Callable[[], None] = lambda: None
        self._is_forked = False  # a copy in another process

    # -- how it stands: ``standing.py`` --

    def _check_not_closed(self) -> None:
        """Nothing will come any more; what came before the end is still delivered."""
        if self.is_closed and not self._retained:
            raise self.closed_error()

    def closed_error(self) -> ClientClosed:
        """The error that a call raises if the session is over."""
        lane = self._context.lane
        of_lane = "" if lane is None else f" of lane {lane}"
        return ClientClosed(f"session {self.cluster_session_id}{of_lane} is closed: {self.why_closed}")

    @property
    def _is_in_listener(self) -> bool:
        return self._deliverer == threading.get_ident()

    # -- sending --

    def offer(self, *parts: Payload) -> int:
        """Send one message, made of the given parts. Returns a position above 0, or a code of ``Offer``.

        The client sends an accepted message again through changes of leader until it is committed
        (``acknowledged``). Messages that are offered at about the same time are sent together
        (``gathering.py``). After BACK_PRESSURED (too much is uncommitted), NOT_CONNECTED and ADMIN_ACTION
        (the client looks for a leader), poll and offer again. CLOSED: the session is over. Some offers poll
        as well, so they may call the listener.

        Raises LocalProtocolError if the message is longer than ``max_payload_length``, and TypeError if a
        part is not bytes.
        """
        payload = parts[0] if len(parts) == 1 and parts[0].__class__ is bytes else joined(parts)
        with self._turn:
            result = self._take(payload)
        if result < 0 or result >= self._poll_at:
            self.poll_if_free()
        return result

    def _take(self, payload: bytes) -> int:
        session = self._session
        if session.state is not ClientState.CONNECTED:
            return self._refusal()
        if len(payload) > session.payload_length_max:
            raise self._too_long(len(payload), 0)
        if not session.window.offer(payload):
            return Offer.BACK_PRESSURED
        self._gathering.on_offer(session)
        return session.window.position

    def begin_request(self, request: Request, *parts: Payload) -> int:
        """Send the message whose answer the request waits for; returns and raises as ``offer``."""
        self._context.check_not_aeron("request", "its answers do not say to which message they are")
        payload = joined(parts)
        with self._turn:
            result = self._take(payload)
            if result > 0:
                self._requests.begin(request, self._session.window.offered)
        if result < 0 or result >= self._poll_at:
            self.poll_if_free()
        return result

    def end_request(self, request: Request, timeout_s: float) -> TimedOut:
        """Wait for it no longer; the error of one that was not answered in time."""
        with self._turn:
            self._requests.drop(request)
            return self._requests.timed_out(request, timeout_s, self.acknowledged)

    def fail_requests(self, error: BaseException) -> None:
        """No answer is waited for any more, for this reason."""
        with self._turn:
            self._requests.fail(error)

    @property
    def awaits_answers(self) -> bool:
        """Whether a request waits."""
        return bool(self._requests)

    def offer_batch(self, payloads: Payloads) -> int:
        """Send many messages in one call, all or none; returns what ``offer`` returns.

        ``payloads`` is a sequence of bytes, a pyarrow array of binary or string values, or a tuple (buffer,
        offsets, lengths) of numpy arrays. An empty batch returns the current position, at least 1.
        """
        offsets, lengths, buffer = as_columns(payloads)
        with self._turn:
            session = self._session
            if session.state is not ClientState.CONNECTED:
                result = self._refusal()
            elif len(lengths) and int(lengths.max()) > session.payload_length_max:
                row = int(lengths.argmax())
                raise self._too_long(int(lengths[row]), row)
            elif session.window.offer_batch(offsets, lengths, buffer):
                session.flush()
                result = max(session.window.position, 1)
            else:
                result = Offer.BACK_PRESSURED
        if result < 0 or result >= self._poll_at:
            self.poll_if_free()
        return result

    def try_claim(self, length: int, claim: BufferClaim) -> int:
        """Give ``claim`` a buffer of ``length`` bytes for one message, which its ``commit`` sends.

        Returns and raises what ``offer`` does; only after a positive result is there a claim. Its room is
        reserved: unless the session ends, ``commit`` succeeds, however much is offered meanwhile, and even
        while the client looks for a leader. The log has a session's messages in the order of its commits and
        offers.
        """
        check_unused(claim)
        check_length(length, self.max_payload_length)
        with self._turn:
            session = self._session
            if session.state is not ClientState.CONNECTED:
                result = self._refusal()
            elif not session.window.claim(length):
                result = Offer.BACK_PRESSURED
            else:
                result = max(session.window.position, 1)
                release = partial(self._unclaim, session, length)
                open_claim(claim, length, Claimed(_may_send, release, partial(self._commit, session)))
        if result < 0:
            self.poll_if_free()
        return result

    def _unclaim(self, session: SessionConductor, length: int) -> None:
        with self._turn:
            session.window.release(length)

    def _commit(self, session: SessionConductor, payload: memoryview) -> int:
        with self._turn:
            if session.state in (ClientState.PENDING_CLOSE, ClientState.CLOSED):
                return Offer.CLOSED
            session.window.offer(bytes(payload), is_claimed=True)
            if session.state is ClientState.CONNECTED:
                session.flush()
            return session.window.position

    def _refusal(self) -> int:
        """Why nothing can be taken now."""
        if self._is_forked:
            raise self.closed_error()
        match self.state:
            case ClientState.AWAIT_NEW_LEADER | ClientState.AWAIT_NEW_SESSION:
                return Offer.NOT_CONNECTED
            case ClientState.AWAIT_NEW_LEADER_CONNECTION:
                return Offer.ADMIN_ACTION
        return Offer.CLOSED

    def _too_long(self, length: int, row: int) -> LocalProtocolError:
        return LocalProtocolError(
            f"message {row} has {length} bytes, the cluster's log takes at most {self.max_payload_length}"
        )

    def poll_if_free(self) -> None:
        """Receive what came, and deliver it to the listener unless another thread does.

        Who only offers would never hear what is committed, and be cut off for not reading its egress.
        """
        self._poll_at = self._session.window.position + OFFERED_PER_POLL
        self._turn_session()
        if not self._is_in_listener and self._delivery.acquire(blocking=False):
            try:
                self._deliver(ALL)
            finally:
                self._delivery.release()

    def send_keep_alive(self) -> bool:
        """Keep the session open without a message; False if it could not be sent now."""
        with self._turn:
            return self._session.send_keep_alive()

    def send_admin_request_to_take_a_snapshot(self, correlation_id: int) -> bool:
        """Ask for a snapshot; ``on_admin_response`` gets the answer.

        False if the request could not be sent now. Raises ClientClosed.
        """
        with self._turn:
            if self.state in (ClientState.PENDING_CLOSE, ClientState.CLOSED):
                raise self.closed_error()
            return self._session.send(
                AdminRequest(
                    self.leadership_term_id,
                    self.cluster_session_id,
                    correlation_id,
                    AdminRequestType.SNAPSHOT,
                )
            )

    # -- the duty cycle --

    def poll_egress(self, fragment_limit: int | None = None) -> int:
        """Deliver what has arrived, keep the session alive, and follow the leader, without waiting.

        Returns the number of messages delivered; without ``fragment_limit`` that is everything that has
        arrived. An exception of the listener is passed on, and the next poll continues after its message.
        What arrived before the session ended is delivered; the poll after that raises ClientClosed. A poll
        from within the listener raises LocalProtocolError.
        """
        self._check_not_closed()
        return self._poll(ALL if fragment_limit is None else fragment_limit)

    def _poll(self, limit: int) -> int:
        if self._is_in_listener:
            raise LocalProtocolError("poll_egress within the listener, which it calls")
        self._turn_session()
        with self._delivery:
            return self._deliver(limit)

    def _turn_session(self) -> None:
        """Hear what came, keep the session alive, follow the leader; or open another session."""
        with self._turn:
            ended = self._requests.ended
            if self._standing.reopening is not None:
                self._world.poll()
                self._reopen(self._standing.reopening)
            elif not self._session.is_closed:
                try:
                    self._session.poll(is_receiving=not self._retained.is_full)
                except Exception:  # the session ended by it, and says so
                    self._lose_session()
                    if self._standing.reopening is None:
                        raise
                else:
                    if self._session.is_closed:
                        self._lose_session()
            if self._resting and self._requests.ended > ended:
                self._world.wake()

    def _lose_session(self) -> None:
        """Open another where that is wanted; a service that closed it meant to."""
        session = self._session
        if not self._context.reopen or session.why_closed == CloseReason.SERVICE_ACTION.name:
            self._world.close()
            self._report_end()
            return
        self._retained.hold(
            LostSession(session.cluster_session_id, session.why_closed, session.window.unacknowledged)
        )
        self._standing.reopening = SessionOpening(self._context, self._world)

    def _reopen(self, opening: SessionOpening) -> None:
        """Take a step towards another session, without an end unless the cluster refuses it."""
        try:
            if opening.poll():
                assert opening.event is not None
                parts = self._context, self._world, opening, self._retained, self._requests
                self._session = self._standing.session = SessionConductor(*parts)
                self._poll_at = OFFERED_PER_POLL
                self._standing.reopening = None
                self._retained.hold(opening.event)
        except TimedOut:
            self._standing.reopening = SessionOpening(self._context, self._world)
        except Exception as error:
            self._standing.reopening = None
            self._session.why_closed += f"; no other was opened: {error}"
            self._world.close()
            self._report_end()

    def _deliver(self, limit: int) -> int:
        """Call the listener, whom this thread has to itself."""
        self._deliverer = threading.get_ident()
        try:
            return self._retained.deliver(self._context.dispatch, limit)
        finally:
            self._deliverer = None

    def run_beside(self) -> None:
        """Begin the client's own thread."""
        self._gathering.begin()
        self._world.run_beside(self.do_duty)

    def do_duty(self) -> float | None:
        """What the client's own thread does; returns after how many seconds again, None when all is over."""
        with self._turn:
            if self._gathering.look(self._session):
                return LOOK_S
            self._turn_session()
            if self.is_closed:
                return None
            if self._retained or self._retained.answers:
                self._world.wake()  # who waits in ``wait`` would not learn of it from the socket any more
            return WAIT_S if self._standing.reopening is not None else self._session.rest_s()

    # -- answers without a listener: taken one by one, by who waits --

    def take_answer(self) -> Answer | None:
        """The next answer, or None; never waits. Raises as ``answers`` does."""
        queue = self._filled_queue()
        with self._turn:
            return queue.take_one()

    def take_answer_batch(self) -> EgressBatch | None:
        """The next run of answers, or None; never waits. Raises as ``answers`` does."""
        queue = self._filled_queue()
        with self._turn:
            return queue.take_batch()

    def _filled_queue(self) -> AnswerQueue:
        """With what came, if nothing was there."""
        queue = self._retained.answers
        if queue is None:
            raise LocalProtocolError("the listener takes the answers: connect with one without on_message")
        if not queue:
            self.poll_egress()
        return queue

    # -- waiting --

    def wait(self, timeout_s: float) -> None:
        """Sleep until something arrives or can be written, at most ``timeout_s``. Raises ClientClosed."""
        self._check_not_closed()
        if not self.has_egress:
            self.rest(timeout_s)

    @property
    def has_egress(self) -> bool:
        """Whether something came for the listener that no poll has delivered."""
        return bool(self._retained) or self._session.has_frames

    def rest(self, timeout_s: float, *, is_due: bool = False) -> None:
        """As ``wait``, whatever became of the session; ``is_due``: an answer is."""
        with self._turn:
            self._session.flush_offered()
            ended = self._requests.ended
            self._resting += 1
        try:
            if self._requests.ended == ended:
                self._world.wait(timeout_s, is_due=is_due or self._session.window.unacknowledged > 0)
        finally:
            with self._turn:
                self._resting -= 1

    def now_ns(self) -> int:
        """Monotonic, of the client's world."""
        return self._world.now_ns()

    def commit_wait(self, timeout_s: float | None = None) -> CommitWait:
        """``await_committed`` for who polls and waits himself."""
        return CommitWait(self._session, self._world.now_ns, timeout_s)

    def last_committed(self) -> tuple[int, int]:
        """``acknowledged`` and ``committed_position`` as one acknowledgement had them."""
        with self._turn:
            return self.acknowledged, self.committed_position

    def token(self) -> str:
        """A position token of what is known to be committed of this client's messages.

        A reader with the token as ``at_least`` reads at least that far, at whatever member. In each term the
        first call asks the leader which log and term this is, for at most ``message_timeout_s``. Raises
        ClusterError if it does not answer, AuthenticationRejected if the client may not read, and ExtraNeeded
        without the extra [reader].
        """
        need("reader")
        from cluster.protocol.token import PositionToken, identity_of, identity_text, is_in_term
        from cluster.transport.member_status import member_status

        context = self._context
        context.check_not_aeron("token", "its members do not say whose log it is")
        position = max(self.committed_position, 0)
        term_id = self.leadership_term_id  # after the position, which is of this term or an earlier one
        known = self._token
        if known is None or not is_in_term(known.term, term_id, position):
            status = member_status(
                self._session.leader_endpoint,
                context.message_timeout_s,
                context.tls,
                context.credentials_supplier,
                position,
            )
            identity = identity_of(status)
            cluster = None if identity is None else identity_text(*identity)
            known = PositionToken(cluster, position, status.term or None)
        self._token = known._replace(position=position)
        return self._token.to_text()

    # -- ending --

    def close(self) -> None:
        """Send what is still queued, ask the cluster to close the session, and release everything.

        This is best effort, as in Aeron: to be sure, call ``await_committed`` first. It waits until the
        leader has read the request, at most ``message_timeout_s``, or one second if nothing is heard.
        """
        with self._turn:
            if self.is_closed:
                return
            if self._standing.reopening is not None:
                self._standing.reopening.close()
                self._standing.reopening = None
            self._session.close()
            self._world.close()
            self._report_end()

    def on_end(self, report: Callable[[], None]) -> None:
        """Call ``report`` once when the client is closed, by whatever thread closes it."""
        self._report_end = report

    def on_forked(self, why: str) -> None:
        """As ``cluster.transport.forks`` says."""
        self._turn, self._delivery, self._is_forked = threading.RLock(), threading.Lock(), True
        self._world.on_forked(why)
        self._standing.reopening = None
        self._session.end(why)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _may_send() -> None:
    """A client may send whenever it has a claim."""
