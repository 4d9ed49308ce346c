"""Keeps what a client has of its driver in step with what the driver says (Aeron: ClientConductor).

Whoever uses the client calls ``do_work``, or waits by ``await_value``, which does: there is no thread but
the heartbeat's. After a MediaDriverError of ``do_work`` all that the client had is gone: close it, and open
another.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

from cluster.errors import MediaDriverError, RemoteProtocolError, TimedOut
from cluster.media.broadcast_receiver import BroadcastReceiver
from cluster.media.client_heartbeat import ClientHeartbeat
from cluster.media.cnc_file import CncFile
from cluster.media.driver_proxy import DriverProxy
from cluster.media.image import Image
from cluster.media.log_buffers import LogBuffers
from cluster.media.subscription import Subscription
from cluster.protocol.media import (
    CLIENT_HEARTBEAT_TYPE,
    OnAvailableImage,
    OnClientTimeout,
    OnError,
    OnOperationSuccess,
    OnPublicationReady,
    OnSubscriptionReady,
    OnUnavailableImage,
    decode_driver_event,
)

CHECK_INTERVAL_S = 1.0
IDLE_S = 0.0005
Answer = OnError | OnOperationSuccess | OnPublicationReady | OnSubscriptionReady


T = TypeVar("T")


class ChannelRefused(MediaDriverError):
    """The driver says no to a channel, and goes on."""


class ClientConductor:
    """The subscriptions of one client, their images, and the answers to its commands."""

    def __init__(self, cnc: CncFile, receiver: BroadcastReceiver, proxy: DriverProxy) -> None:
        self._cnc = cnc
        self._receiver = receiver
        self._proxy = proxy
        self._heartbeat: ClientHeartbeat | None = None
        self._check_at_s = 0.0
        self._expected: set[int] = set()
        self._answers: dict[int, Answer] = {}
        self._subscriptions: dict[int, Subscription] = {}

    # ---- what the client asks for

    def expect(self, correlation_id: int) -> None:
        """Keep the answer to this command, for ``answer`` or ``await_answer``."""
        self._expected.add(correlation_id)

    def expect_no_more(self, correlation_id: int) -> None:
        """Nobody will ask for the answer."""
        self._expected.discard(correlation_id)
        self._answers.pop(correlation_id, None)

    def answer(self, correlation_id: int) -> Answer | None:
        """The driver's answer to an expected command, once it is there. Raises ChannelRefused."""
        answer = self._answers.pop(correlation_id, None)
        if answer is not None:
            self._expected.discard(correlation_id)
        if isinstance(answer, OnError):
            raise ChannelRefused(f"the media driver refused: {answer.message} (error {answer.error_code})")
        return answer

    def await_answer(self, correlation_id: int, timeout_s: float) -> Answer:
        """The driver's answer to an expected command. Raises MediaDriverError for none, ChannelRefused."""
        try:
            self.await_value(lambda: correlation_id in self._answers, timeout_s, "the media driver's answer")
            answer = self.answer(correlation_id)
        except TimedOut as error:
            raise MediaDriverError(str(error)) from None
        finally:
            self._expected.discard(correlation_id)
        assert answer is not None
        return answer

    def await_value(self, found: Callable[[], T | None], timeout_s: float, what: str) -> T:
        """Work until there is something true; returns it. Raises TimedOut, naming ``what`` did not come."""
        deadline = time.monotonic() + timeout_s
        while True:
            work_count = self.do_work()
            if value := found():
                return value
            if work_count == 0:
                if time.monotonic() > deadline:
                    raise TimedOut(f"{what} did not come within {timeout_s:g} s")
                time.sleep(IDLE_S)

    def follow(self, subscription: Subscription) -> None:
        """From now on the subscription gets its images."""
        self._subscriptions[subscription.registration_id] = subscription

    def forget(self, subscription: Subscription) -> None:
        """The subscription is the driver's no longer: its images have no counters."""
        self._subscriptions.pop(subscription.registration_id, None)
        for image in subscription.images.values():
            image.is_closed = True
        subscription.images.clear()

    # ---- what the driver says

    def do_work(self) -> int:
        """Take in what the driver has said; returns how much. Raises MediaDriverError."""
        self._proxy.check_process()
        now_s = time.monotonic()
        if now_s >= self._check_at_s:
            self._check_at_s = now_s + CHECK_INTERVAL_S
            self._check()
        count = 0
        while (record := self._receiver.receive()) is not None:
            count += 1
            try:
                self._on(*record)
            except RemoteProtocolError as error:
                raise MediaDriverError(f"the media driver's answer does not decode: {error}") from None
        return count

    def _check(self) -> None:
        self._cnc.check_driver()
        if self._heartbeat is not None and self._heartbeat.is_lost:
            raise MediaDriverError("the media driver has given this client up")

    def _on(self, type_id: int, body: bytes) -> None:
        event = decode_driver_event(type_id, body)
        match event:
            case OnClientTimeout():
                if event.client_id == self._proxy.client_id:
                    raise MediaDriverError("the media driver has given this client up: it was silent")
            case OnAvailableImage():
                self._on_available_image(event)
            case OnUnavailableImage():
                self._on_unavailable_image(event)
            case None:
                pass
            case _:
                if event.correlation_id in self._expected:
                    self._answers[event.correlation_id] = event
                    if self._heartbeat is None and not isinstance(event, OnError):
                        self._begin_heartbeat()

    def _on_available_image(self, event: OnAvailableImage) -> None:
        subscription = self._subscriptions.get(event.subscription_registration_id)
        if subscription is None:
            return
        try:
            log = LogBuffers(event.log_file)
        except MediaDriverError:
            if os.path.exists(event.log_file):
                raise
            return  # it has gone again
        image = Image(
            self._cnc,
            event.correlation_id,
            event.session_id,
            event.subscriber_position_counter_id,
            log,
            event.source_identity,
        )
        subscription.images[event.session_id] = image

    def _on_unavailable_image(self, event: OnUnavailableImage) -> None:
        subscription = self._subscriptions.get(event.subscription_registration_id)
        if subscription is None:
            return
        for session_id, image in list(subscription.images.items()):
            if image.correlation_id == event.correlation_id:
                image.is_closed = True
                del subscription.images[session_id]

    # ---- life

    def _begin_heartbeat(self) -> None:
        """The driver makes the client's counter with its first command."""
        key = self._proxy.client_id.to_bytes(8, "little", signed=True)
        for counter in self._cnc.counters():
            if counter.is_allocated and counter.type_id == CLIENT_HEARTBEAT_TYPE and counter.key[:8] == key:
                self._heartbeat = ClientHeartbeat(self._cnc, self._proxy.client_id, counter.counter_id)
                return
        raise MediaDriverError("the media driver has no heartbeat counter of this client")

    def close(self) -> None:
        """End the heartbeat, and all images."""
        if self._heartbeat is not None:
            self._heartbeat.close()
        for subscription in list(self._subscriptions.values()):
            self.forget(subscription)
