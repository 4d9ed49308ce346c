"""An archive's conductor over a scripted driver, with recordings in memory, and its clients."""

from __future__ import annotations

from bisect import bisect_right
from concurrent.futures import Future
from dataclasses import replace

from cluster.aeron.archive_conductor import ArchiveConductor
from cluster.errors import LogDamaged
from cluster.protocol import archive_control as control
from cluster.protocol.archive_control import ControlResponseCode
from cluster.protocol.catalog import RecordingDescriptor
from cluster.protocol.frame import header_at
from cluster.transport.bounds import DEFAULT_BOUNDS
from cluster.transport.log_server import Judged
from tests.aeron.recorded import TERM_LENGTH, recorded
from tests.aeron.scripted_media import ScriptedAeron

LOG, SNAPSHOT, OPEN, EMPTY = 0, 1, 2, 5  # OPEN is a snapshot that is being taken
COUNTER = 7
ARCHIVE_ID = 2
BOUNDS = replace(DEFAULT_BOUNDS, readers_max=2)
OK, ERROR = ControlResponseCode.OK, ControlResponseCode.ERROR
UNKNOWN = ControlResponseCode.RECORDING_UNKNOWN
CONNECT = control.AuthConnectRequest(
    40, 20, control.ARCHIVE_CONTROL_VERSION, "aeron:udp?endpoint=10.0.0.7:9020|tags=1,2", b"secret", "me"
)
FRAMES, _ROWS = recorded()
BEGINS = [0]
while BEGINS[-1] < FRAMES.size:
    BEGINS.append(BEGINS[-1] + header_at(FRAMES, BEGINS[-1]).aligned_length)
COMMITTED = next(row["endPosition"] for row in _ROWS if row["position"] > TERM_LENGTH // 2)
REPLAY = "aeron:udp?endpoint=10.0.0.7:9030|session-id=-3"


def a_recording(recording_id: int, stop_position: int, **fields: object) -> RecordingDescriptor:
    found = RecordingDescriptor(
        0,
        0,
        recording_id,
        1,
        -1,
        0,
        stop_position,
        9,
        128 * 1024,
        TERM_LENGTH,
        1408,
        8,
        100,
        "c",
        "aeron:a",
        "s",
    )
    return found.replace(**fields)


class Archive:
    """Recordings in memory; of the log so much is committed."""

    def __init__(self) -> None:
        self.frames, self.begins = FRAMES, list(BEGINS)
        self.committed_position = COMMITTED
        self.found = [
            a_recording(LOG, -1),
            a_recording(SNAPSHOT, self.frames.size, stream_id=106, original_channel="aeron:b"),
            a_recording(OPEN, -1, stream_id=106),
            a_recording(EMPTY, 0, stream_id=107),
        ]
        self.failure: Exception | None = None
        self.is_closed = False
        self.log_id = LOG
        self.looks = 0
        self.recorded_position = self.frames.size
        self.led_session_id: int | None = None

    def recordings(self):
        if self.failure is not None:
            raise self.failure
        return self.found

    def committed(self, recording_id):
        self.looks += 1
        return self.committed_position if recording_id == self.log_id else None

    def recorded(self, recording_id):
        return self.recorded_position if recording_id == self.log_id else None

    def recorded_blocks(self, *place):
        yield from self.blocks(*place)

    def is_bounded_by(self, counter_id):
        return counter_id == COUNTER

    def blocks(self, recording, position, end, max_bytes):
        if position not in self.begins:
            raise LogDamaged(None, position, "no frame begins here")
        while position < end:
            to = self.begins[bisect_right(self.begins, min(position + max_bytes, end)) - 1]
            if to <= position:  # a frame that is longer
                to = self.begins[bisect_right(self.begins, position)]
            yield self.frames[position:to]
            position = to

    def close(self):
        self.is_closed = True


class Served:
    """The conductor over a scripted driver, and the clock by which it is turned."""

    def __init__(self) -> None:
        self.aeron, self.archive = ScriptedAeron(), Archive()
        self.errors: list[str] = []
        self.asked: list[tuple[object, int]] = []
        self.judged: Future[Judged] = Future()
        self.judged.set_result(Judged(""))
        self.now_ns = 10**9
        self.conductor = ArchiveConductor(
            self.aeron,
            "aeron:udp?endpoint=localhost:8010",
            self.archive,
            self._ask,
            ARCHIVE_ID,
            BOUNDS,
            lambda error: self.errors.append(str(error)),
        )

    def _ask(self, identity, template_id):
        self.asked.append((identity, template_id))
        return self.judged

    def turn(self, count=6, after_ns=0):
        self.now_ns += after_ns
        for _ in range(count):
            self.conductor.do_work(self.now_ns)

    def connect(self, session_id=5, request=CONNECT, host="10.0.0.7"):
        """A client's publication, and the one on which it is answered."""
        image = self.aeron.client(session_id, f"{host}:40123")
        image.sends(request.encode())
        self.turn()
        return Client(self, image, self.aeron.publications[-1])


class Client:
    def __init__(self, served, image, publication):
        self.served, self.image, self.publication = served, image, publication
        self.first, *_ = (*self.answers(), None)
        self.id = self.first.control_session_id if self.first else None

    def answers(self):
        found = [control.decode_archive_answer(message) for message in self.publication.offered]
        self.publication.offered.clear()
        return found

    def sends(self, kind, *fields, **more):
        self.image.sends(kind(self.id, 41, *fields, **more).encode())
        self.served.turn()

    def asks(self, kind, *fields, **more):
        self.sends(kind, *fields, **more)
        return self.answers()

    def refused(self, kind, *fields, **more):
        """The code and text of an error, which is the only answer."""
        (answer,) = self.asks(kind, *fields, **more)
        assert (answer.code, answer.correlation_id, answer.control_session_id) == (ERROR, 41, self.id)
        return answer.relevant_id, answer.error_message

    def replays(self, recording_id=SNAPSHOT, position=0, length=-1, **more):
        """The publication of a replay whose id was answered."""
        request = {"replay_channel": REPLAY, **more}
        (answer,) = self.asks(control.ReplayRequest, recording_id, position, length, 1001, **request)
        assert (answer.code, answer.relevant_id & 0xFFFFFFFF) == (OK, -3 & 0xFFFFFFFF)
        self.replay_id = answer.relevant_id
        return self.served.aeron.publications[-1]
