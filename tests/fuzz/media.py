"""The files of a media driver, whatever is in them, and the egress of a session, whoever sends there."""

from __future__ import annotations

import socket
import struct
import tempfile
import time
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from cluster.aeron.aeron_client_link import AeronClient
from cluster.aeron.aeron_clients import AeronClients
from cluster.errors import ClusterError
from cluster.media.aeron import Aeron
from cluster.media.aeron_archive import CONTROL_STREAM
from cluster.media.broadcast_receiver import BroadcastReceiver
from cluster.media.cnc_file import CncFile
from cluster.media.image import Image
from cluster.media.log_buffers import LogBuffers
from cluster.media.publication import Publication
from cluster.protocol import archive_control as control
from cluster.protocol.cnc import CncHeader, consumer_heartbeat_offset, decode_cnc_header
from cluster.protocol.enums import EventCode
from cluster.protocol.frame import frame
from cluster.protocol.media import (
    LOG_METADATA_LENGTH,
    ON_AVAILABLE_IMAGE,
    TERMS,
    OnAvailableImage,
    decode_driver_event,
)
from cluster.protocol.session import Challenge, SessionConnectRequest, SessionMessageHeader
from cluster.transport.bounds import DEFAULT_BOUNDS
from cluster.transport.message_frames import message_frame
from tests.aeron.scripted_cluster import SESSION, ScriptedMembers
from tests.aeron.scripted_media import ScriptedAeron
from tests.aeron.served_archive import CONNECT, LOG, Served
from tests.fuzz.targets import FRAMES, Target, named
from tests.media.made_driver import TERM_LENGTH, MadeDriver, log_buffer

_WRITTEN = 1024  # of the term, in an input


class MediaDriverFiles(Target):
    """An input is a cnc.dat, the first bytes of a term, and the metadata of its log buffer."""

    slice = 300

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="fuzz-")
        folder = Path(self._folder.name)
        driver = MadeDriver(folder, ring=1024, broadcast=1024, counters=4)
        driver.counter(1, value=2**62)
        driver.counter(4)
        name = str(folder / "log").encode()
        image = struct.pack("<qiiqii", 9, 5, 7, 3, 1, len(name)) + name
        driver.answer(ON_AVAILABLE_IMAGE, image + bytes(-len(image) % 4) + struct.pack("<i4s", 4, b"here"))
        self._cnc, self._log = driver.path, folder / "log"
        self._cnc_length = len(driver.file)
        frames = b"".join(
            frame(b"word" * n, session_id=5, stream_id=7, term_id=0, term_offset=0) for n in (1, 9)
        )
        self.corpus = [
            driver.path.read_bytes() + frames.ljust(_WRITTEN, b"\0") + log_buffer()[-LOG_METADATA_LENGTH:]
        ]

    def feed(self, data: bytes) -> str:
        cnc = bytearray(data[: self._cnc_length])
        _beat(cnc)
        self._cnc.write_bytes(cnc)
        written = data[self._cnc_length :][:_WRITTEN]
        metadata = data[self._cnc_length + _WRITTEN :][:LOG_METADATA_LENGTH]
        self._log.write_bytes(written.ljust(TERMS * TERM_LENGTH, b"\0") + metadata)
        try:
            return self._use()
        except ClusterError as error:
            return named(error)

    def _use(self) -> str:
        cnc = CncFile(str(self._cnc.parent), 0)
        receiver = BroadcastReceiver(cnc.buffer, cnc.regions.to_clients)
        heard = []
        for _ in range(16):
            record = receiver.receive()
            if record is None:
                break
            event = decode_driver_event(*record)
            heard.append(type(event).__name__)
            if isinstance(event, OnAvailableImage):
                counter_id = event.subscriber_position_counter_id
                image = Image(cnc, 1, event.session_id, counter_id, LogBuffers(str(self._log)))
                heard.append(str(image.poll(np.zeros(_WRITTEN, np.uint8)) > 0))
        cnc.counters()
        publication = Publication(cnc, 1, 5, 0, LogBuffers(str(self._log)))
        heard += [str(min(publication.offer(bytes(length)), 0)) for length in (1, 5000)]
        Aeron(cnc).ask_for_subscription("aeron:ipc", 1)
        return " ".join(heard)

    def close(self) -> None:
        self._folder.cleanup()


class _OfAnImage(Target):
    """An input is what a publication sends."""

    slice = 150

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="fuzz-")
        folder = Path(self._folder.name)
        driver = MadeDriver(folder, ring=1024, broadcast=1024, counters=4)
        self._position = driver.counter(4)
        self._cnc, self._log = CncFile(str(folder), 0), folder / "log"

    def _image(self, data: bytes) -> Image:
        written = data[:TERM_LENGTH].ljust(TERMS * TERM_LENGTH, b"\0")
        self._log.write_bytes(written + log_buffer()[-LOG_METADATA_LENGTH:])
        at = self._cnc.value_offset(self._position)
        self._cnc.buffer[at : at + 8] = 0
        return Image(self._cnc, 2, 5, self._position, LogBuffers(str(self._log)), "10.0.0.7:1")

    def close(self) -> None:
        self._folder.cleanup()


class AeronIngressImage(_OfAnImage):
    """The begin of an image, of which a member makes ingress of its clients."""

    def __init__(self) -> None:
        super().__init__()
        request = SessionConnectRequest(1, 102, 768, "aeron:udp?endpoint=a:1", b"name:word", "name=x")
        self.corpus = [message_frame(request, 101) + data for data in (*FRAMES[:6], FRAMES[-1])]

    def feed(self, data: bytes) -> str:
        image = self._image(data)
        aeron = ScriptedAeron()
        errors: list[ClusterError] = []
        members: list[socket.socket] = []

        def connect(*_: object) -> socket.socket:
            member, client = socket.socketpair()
            members.append(member)
            return client

        clients = AeronClients(cast(Aeron, aeron), {101: ""}, 2, connect, 2048, DEFAULT_BOUNDS, errors.append)
        clients.open(AeronClient("aeron:udp?endpoint=b:1", 102, "b", session_id=1))
        clients.do_work()
        aeron.images[5] = image
        for _ in range(2):
            clients.do_work()
        told = [str(len(member.recv(1 << 20))) for member in members]
        clients.close()
        for member in members:
            member.close()
        return " ".join([*told, *map(named, errors)])


class AeronArchiveImage(_OfAnImage):
    """What the client of an archive may send next; then an honest one is answered."""

    def __init__(self) -> None:
        super().__init__()
        requests = (
            control.AuthConnectRequest(1, 20, 0x010B00, "aeron:udp?endpoint=a:1", b"word", "name=x"),
            control.ListRecordingsRequest(0, 2, 0, 9),
            control.FindLastMatchingRecordingRequest(0, 3, 0, -3, 100, "a"),
            control.ReplayRequest(0, 4, LOG, 0, -1, 7, replay_channel="aeron:udp?endpoint=a:2|session-id=7"),
            control.BoundedReplayRequest(0, 5, LOG, 64, 96, 7, 7, replay_channel="aeron:udp?endpoint=a:2"),
            control.MaxRecordedPositionRequest(0, 6, LOG),
            control.StopAllReplaysRequest(0, 7, -1),
            control.CloseSessionRequest(0),
        )
        self.corpus = [message_frame(request, CONTROL_STREAM) for request in requests]

    def feed(self, data: bytes) -> str:
        served = Served()
        image = served.aeron.images[7] = self._image(connected := message_frame(CONNECT, CONTROL_STREAM))
        served.turn()
        data = data[: TERM_LENGTH - len(connected)]
        image._log.buffer[len(connected) :][: len(data)] = np.frombuffer(data, np.uint8)
        served.turn(40)
        told = [len(each.offered) + len(each.recorded) for each in served.aeron.publications]
        client = served.connect()
        assert client.asks(control.ArchiveIdRequest)
        served.conductor.close()
        return " ".join(map(str, [*told, *served.errors]))


class AeronEgress(Target):
    """What anybody sends to the port of a session's egress, the cluster's own messages among it."""

    slice = 300

    def __init__(self) -> None:
        self._patch = pytest.MonkeyPatch()
        self._open()
        members = self._members
        said = [members.answer(code, 1, "0=host:9002") for code in EventCode]
        said += [members.new_leader(4, leader) for leader in (1, 9)]
        said += [Challenge(1, SESSION, b"who?"), SessionMessageHeader(3, SESSION, 11)]
        self.corpus = [message.encode() for message in said]

    def _open(self) -> None:
        self._members = ScriptedMembers(self._patch)
        self._session = self._members.open_session()

    def feed(self, data: bytes) -> str:
        session, heard = self._session, len(self._members.heard)
        self._members.say(data)
        session.do_work()
        outcome = f"{session.state} {session.leader_member_id} {len(self._members.heard) - heard}"
        if session.is_closed or session.leader_member_id != 0 or len(self._members.heard) > 100:
            self._open()
        return outcome

    def check(self) -> None:
        assert self._session.offer(b"x") > 0

    def close(self) -> None:
        self._patch.undo()


def _beat(cnc: bytearray) -> None:
    """Let the driver seem to run, where its heartbeat can be found."""
    try:
        header: CncHeader = decode_cnc_header(cnc)
    except ClusterError:
        return
    offset = consumer_heartbeat_offset(header)
    if 0 <= offset <= len(cnc) - 8:
        struct.pack_into("<q", cnc, offset, time.time_ns() // 1_000_000)
