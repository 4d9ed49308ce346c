"""The client of a media driver: ``Aeron.connect`` finds it by its directory.

    with Aeron.connect("/dev/shm/aeron-me") as aeron:
        subscription = aeron.add_subscription("aeron:udp?endpoint=localhost:20121", 1001)

One thread uses it. Kernels are compiled when this module is imported, so before the driver expects to hear
from the client. All errors of the driver are MediaDriverError.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import struct
from collections.abc import Callable
from typing import Self

from cluster.errors import MediaDriverError
from cluster.media.broadcast_receiver import BroadcastReceiver
from cluster.media.client_conductor import Answer, ClientConductor
from cluster.media.cnc_file import CncFile
from cluster.media.driver_proxy import DriverProxy
from cluster.media.log_buffers import LogBuffers
from cluster.media.many_to_one_ring_buffer import ManyToOneRingBuffer
from cluster.media.publication import Publication
from cluster.media.subscription import Subscription
from cluster.protocol import media
from cluster.protocol.media import LOCAL_SOCKET_ADDRESS_TYPE, OnPublicationReady, OnSubscriptionReady
from cluster.protocol.sbe import Composite

ANSWER_TIMEOUT_S = 10.0
_ADDRESS = struct.Struct("<ii")  # of a channel's socket: key of its counter, before the text


def default_aeron_dir() -> str:
    """Where a driver of this user is whose directory nobody named (Aeron: AERON_DIR_PROP_DEFAULT)."""
    folder = "/dev/shm" if os.path.isdir("/dev/shm") else "/tmp"
    return f"{folder}/aeron-{getpass.getuser()}"


class Aeron:
    """A client; closing it gives back to the driver all that it has."""

    def __init__(self, cnc: CncFile) -> None:
        self._cnc = cnc
        self._proxy = DriverProxy(ManyToOneRingBuffer(cnc.buffer, cnc.regions.to_driver))
        self.conductor = ClientConductor(
            cnc, BroadcastReceiver(cnc.buffer, cnc.regions.to_clients), self._proxy
        )

    @classmethod
    def connect(cls, aeron_dir: str | None = None, timeout_s: float = 10.0) -> Self:
        """A client of the driver of this directory, by default the user's. Raises MediaDriverError."""
        return cls(CncFile(default_aeron_dir() if aeron_dir is None else aeron_dir, timeout_s))

    def next_correlation_id(self) -> int:
        """A number that no other client of the driver gets."""
        return self._proxy.next_correlation_id()

    def add_subscription(self, channel: str, stream_id: int) -> Subscription:
        """Raises MediaDriverError for a channel that the driver refuses, with what it says."""
        subscription = self.ask_for_subscription(channel, stream_id)
        try:
            answer = self.conductor.await_answer(subscription.registration_id, ANSWER_TIMEOUT_S)
        except MediaDriverError:
            self.conductor.forget(subscription)
            raise
        assert isinstance(answer, OnSubscriptionReady)
        subscription.channel_status_counter_id = answer.channel_status_counter_id
        return subscription

    def add_exclusive_publication(self, channel: str, stream_id: int) -> Publication:
        """Raises MediaDriverError for a channel that the driver refuses, with what it says."""
        registration_id = self.ask_for_exclusive_publication(channel, stream_id)
        answer = self.conductor.await_answer(registration_id, ANSWER_TIMEOUT_S)
        return self._publication(answer)

    def _publication(self, answer: Answer) -> Publication:
        assert isinstance(answer, OnPublicationReady)
        log = LogBuffers(answer.log_file)
        return Publication(
            self._cnc, answer.registration_id, answer.session_id, answer.position_limit_counter_id, log
        )

    # ---- without waiting: ``conductor.answer`` of the id has the driver's answer

    def _ask(self, type_id: int, kind: Callable[..., Composite], *fields: int | str) -> int:
        correlation_id = self._proxy.command(type_id, kind, *fields)
        self.conductor.expect(correlation_id)
        return correlation_id

    def ask_for_subscription(self, channel: str, stream_id: int) -> Subscription:
        """It gets its images once the driver has it; its registration id is that of the command."""
        registration_id = self._ask(media.ADD_SUBSCRIPTION, media.AddSubscription, -1, stream_id, channel)
        subscription = Subscription(registration_id, channel, stream_id)
        self.conductor.follow(subscription)
        return subscription

    def ask_for_exclusive_publication(self, channel: str, stream_id: int) -> int:
        """The id to ask ``publication_of`` for."""
        return self._ask(media.ADD_EXCLUSIVE_PUBLICATION, media.AddPublication, stream_id, channel)

    def publication_of(self, registration_id: int) -> Publication | None:
        """The publication that was asked for, once the driver has it. Raises ChannelRefused."""
        answer = self.conductor.answer(registration_id)
        return None if answer is None else self._publication(answer)

    def add_destination(self, subscription: Subscription, channel: str) -> int:
        """Have a subscription of manual control listen at ``channel``; returns the id of the command."""
        return self._ask(
            media.ADD_DESTINATION, media.DestinationCommand, subscription.registration_id, channel
        )

    def add_sent_destination(self, publication: Publication, channel: str) -> int:
        """Have a publication of manual control send to ``channel``, too; returns the id of the command."""
        return self._ask(
            media.ADD_SENT_DESTINATION, media.DestinationCommand, publication.registration_id, channel
        )

    def remove_destination(self, subscription: Subscription, channel: str) -> None:
        """Have it listen there no more. Nobody waits for the answer."""
        self._proxy.command(
            media.REMOVE_DESTINATION, media.DestinationCommand, subscription.registration_id, channel
        )

    def has_socket_of(self, registration_id: int) -> bool:
        """Whether the driver still listens for a subscription, which may have been given back."""
        return any(
            counter.is_allocated
            and counter.type_id == LOCAL_SOCKET_ADDRESS_TYPE
            and counter.registration_id == registration_id
            for counter in self._cnc.counters()
        )

    def remove_subscription(self, subscription: Subscription) -> None:
        """Give it back; what its images had can be read no further."""
        self.conductor.forget(subscription)
        self._proxy.command(media.REMOVE_SUBSCRIPTION, media.RemoveSubscription, subscription.registration_id)

    def remove_publication(self, publication: Publication) -> None:
        """Give it back; the driver sends what was offered."""
        self.give_up_publication(publication.registration_id)

    def give_up_publication(self, registration_id: int) -> None:
        """The same by its id, also of one that the driver has not answered for."""
        self.conductor.expect_no_more(registration_id)
        self._proxy.command(media.REMOVE_PUBLICATION, media.RemovePublication, registration_id)

    def local_address(self, subscription: Subscription) -> str:
        """``host:port`` that a subscription is bound to whose channel says port 0."""
        what = f"the port of {subscription.channel}"
        return self.conductor.await_value(lambda: self._addresses(subscription), ANSWER_TIMEOUT_S, what)[0]

    def _addresses(self, subscription: Subscription) -> list[str]:
        addresses = []
        for counter in self._cnc.counters():
            if counter.is_allocated and counter.type_id == LOCAL_SOCKET_ADDRESS_TYPE:
                status_id, length = _ADDRESS.unpack_from(counter.key)
                if status_id == subscription.channel_status_counter_id and 0 < length <= 104:
                    addresses.append(counter.key[_ADDRESS.size :][:length].decode("latin-1"))
        return addresses

    def close(self) -> None:
        """End the client. What has failed before is no error now."""
        self.conductor.close()
        with contextlib.suppress(MediaDriverError):
            self._proxy.client_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
