"""Members of a real cluster without a network: a script says what each answers; time passes by waiting."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cluster.aeron import aeron_log, aeron_survey
from cluster.aeron.aeron_log import AeronLog
from cluster.errors import LogPurged, MediaDriverError, RemoteProtocolError, TimedOut
from cluster.log.scan import frame_starts
from cluster.media.aeron_archive import AeronArchive, ArchiveRefusal
from cluster.media.client_conductor import ChannelRefused
from cluster.protocol.backup import BackupResponse, BackupSnapshotRecording
from cluster.protocol.catalog import RecordingDescriptor
from cluster.protocol.frame import DATA_FRAME_HEADER, align
from cluster.reader import LogReader
from tests.aeron.recorded import SESSION
from tests.log.naive import scan

CHUNK = 8192
REPLAYED = 100  # session and stream of a replay


@dataclass
class Script:
    """One member: ``data`` is all that it has recorded, from position 0 on."""

    member_id: int
    data: np.ndarray
    term_length: int
    is_leader: bool = False
    commit: int = 0  # by default all
    recorded: int = 0  # by default all
    start: int = 0
    answers: bool = True
    garbles: bool = False  # what it answers
    refuses: bool = True  # a replay from beyond the commit position; else it waits
    breaks_at: int | None = None  # where a replay ends, once
    stalls_at: int | None = None  # where it sends nothing more, once
    pauses_at: int | None = None  # where a replay has nothing for one poll, once
    loses_driver_at: int | None = None  # where the client is given up, once
    replays: list[tuple[int, int]] = field(default_factory=list)
    stops: int = 0  # replays that were asked to end
    members: str = ""  # as the member names them
    stream_id: int = 100
    is_stopped: bool = False
    term_id: int = 0
    leader_id: int = 0
    snapshots: tuple[BackupSnapshotRecording, ...] = ()

    def __post_init__(self) -> None:
        self.commit = self.commit or len(self.data)
        self.recorded = self.recorded or len(self.data)

    def descriptor(self) -> RecordingDescriptor:
        """Of its recording, whose id is the member's."""
        stop = self.commit if self.is_stopped else -1
        lengths = self.term_length, self.term_length, 1408
        where = SESSION, self.stream_id, "aeron:ipc", "aeron:ipc", ""
        return RecordingDescriptor(0, 0, self.member_id, 70, -1, self.start, stop, 9, *lengths, *where)


def mark_replayed(frames: np.ndarray) -> None:
    """Give frames the session and the stream of a replay."""
    headers = frames.view(DATA_FRAME_HEADER)
    for name in ("session_id", "stream_id"):
        headers[name][frame_starts(frames) // 32] = REPLAYED


class ScriptedReplay:
    def __init__(self, script: Script, position: int, length: int) -> None:
        self.script = script
        self.position = position
        self._end = position + length
        self.is_over = False
        self.needed = 0
        self._stalls = False

    def poll(self, out: np.ndarray, at: int = 0) -> int:
        script = self.script
        if self.is_over or self._stalls or self._meets("pauses_at"):
            return 0
        if self._meets("loses_driver_at"):
            raise MediaDriverError("the media driver has given this client up")
        self.is_over = self._meets("breaks_at")
        self._stalls = self._meets("stalls_at")
        room, first = out.size - at, 0
        if self.position < script.commit:
            first = align(int(script.data[self.position : self.position + 4].view(np.int32)[0]))
        self.needed = first if first > room else 0
        bound = min(script.commit, self.position + min(max(CHUNK, first), room))
        end = scan(script.data, self.position, max(bound, self.position))
        if self.is_over or self._stalls or self.position >= self._end or end == self.position:
            self.is_over |= self.position >= self._end
            return 0
        length = end - self.position
        out[at : at + length] = script.data[self.position : end]
        mark_replayed(out[at : at + length])
        self.position = end
        return length

    def _meets(self, name: str) -> bool:
        where = getattr(self.script, name)
        if where is None or self.position < where:
            return False
        setattr(self.script, name, None)
        return True

    def stop(self) -> None:
        self.script.stops += 1


class ScriptedMember:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.response: BackupResponse | None = None
        self.is_closed = False

    @property
    def member_id(self) -> int:
        return self.script.member_id

    @property
    def is_leader(self) -> bool:
        return self.script.is_leader

    def begin_query(self) -> None:
        self.response = None

    def poll_response(self) -> bool:
        if self.script.garbles:
            raise RemoteProtocolError("a BackupResponse of 3 bytes")
        if self.script.answers:
            script = self.script
            terms = 0, 0, script.term_id, 0
            self.response = BackupResponse(
                1, 0, *terms, 7, script.leader_id, script.member_id, script.snapshots, script.members
            )
        return self.response is not None

    def query(self) -> BackupResponse:
        self.begin_query()
        if not self.poll_response():
            raise TimedOut("no answer")
        assert self.response is not None
        return self.response

    def recording(self) -> RecordingDescriptor:
        self.query()
        return self.script.descriptor()

    def recorded_end(self) -> int:
        self.query()
        return self.script.recorded

    def replay(self, position: int, length: int) -> ScriptedReplay:
        self.query()
        script = self.script
        script.replays.append((position, length))
        if position < script.start:
            raise LogPurged(f"position {position} was purged", script.start)
        if position > script.commit and script.refuses:
            raise ArchiveRefusal("beyond the limit")
        return ScriptedReplay(script, position, length)

    def close(self) -> None:
        self.is_closed = True


class ScriptedArchive:
    """An archive: a script describes the recording of id ``member_id``, recorded up to ``commit``."""

    def __init__(self, endpoint: str, scripts: dict[int, Script]) -> None:
        self.endpoint = endpoint
        self._scripts = scripts

    def recording(self, recording_id: int) -> RecordingDescriptor:
        if recording_id not in self._scripts:
            raise ArchiveRefusal(f"no recording {recording_id}")
        return self._scripts[recording_id].descriptor()

    def list_recordings(self) -> list[RecordingDescriptor]:
        return [script.descriptor() for script in self._scripts.values()]

    def recorded_end(self, recording_id: int) -> int:
        self.recording(recording_id)
        return self._scripts[recording_id].commit

    def replay(self, recording_id: int, position: int, length: int, io_max: int | None) -> ScriptedReplay:
        script = self._scripts[recording_id]
        if position < script.start or (script.is_stopped and position >= script.commit):
            raise ArchiveRefusal("outside the recording")
        end = script.commit - position if script.is_stopped else length
        return ScriptedReplay(script, position, min(length, end))

    def close(self) -> None:
        pass


class _Aeron:
    conductor: Any

    def __init__(self) -> None:
        self.conductor = self

    @classmethod
    def connect(cls, aeron_dir: str | None, timeout_s: float) -> _Aeron:
        return cls()

    def do_work(self) -> int:
        return 0

    def close(self) -> None:
        pass

    def __enter__(self) -> _Aeron:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Clock:
    """Passes when somebody waits."""

    def __init__(self) -> None:
        self.now_ns = 0

    def wait(self, seconds: float) -> None:
        self.now_ns += int(seconds * 1e9)


def open_scripted(monkeypatch: Any, scripts: list[Script], **options: Any) -> LogReader:
    """A reader of these members."""
    by_endpoint = {f"host:{9000 + script.member_id}": script for script in scripts}
    monkeypatch.setattr(aeron_log, "Aeron", _Aeron)
    monkeypatch.setattr(
        aeron_log, "AeronMember", type("Member", (ScriptedMember,), {"__init__": _of(by_endpoint)})
    )
    clock = Clock()
    options = {"spread": 0, "now_ns": lambda: clock.now_ns, "wait": clock.wait, **options}
    return LogReader(AeronLog(",".join(by_endpoint), **options))


def survey_scripted(monkeypatch: Any, scripts: list[Script]) -> None:
    """Let these be the members that are asked how they stand; time passes while they are waited for."""
    by_endpoint = {f"host:{9000 + script.member_id}": script for script in scripts}
    members = "|".join(f"{s.member_id},i:1,host:{9000 + s.member_id},l:1,c:1,a:1" for s in scripts)
    for script in scripts:
        script.members = members
    clock = Clock()
    member = type("Member", (ScriptedMember,), {"__init__": _of(by_endpoint)})
    of_module = {
        "Aeron": _Aeron,
        "AeronMember": member,
        "monotonic_ns": lambda: clock.now_ns,
        "pause": clock.wait,
    }
    for name, value in of_module.items():
        monkeypatch.setattr(aeron_survey, name, value)


def open_recording(
    monkeypatch: Any, scripts: list[Script], recording_id: int | None = 0, **options: Any
) -> LogReader:
    """A reader of a recording of the archive that has these."""
    archive = ScriptedArchive("archive:8010", {script.member_id: script for script in scripts})
    monkeypatch.setattr(aeron_log, "Aeron", _Aeron)
    monkeypatch.setattr(AeronArchive, "connect", lambda *_: archive)
    clock = Clock()
    timing = {"now_ns": lambda: clock.now_ns, "wait": clock.wait}
    return LogReader.open(aeron_archive=archive.endpoint, recording_id=recording_id, **timing, **options)


def _of(scripts: dict[str, Script]) -> Any:
    def init(self: ScriptedMember, aeron: Any, endpoint: str, *_: Any) -> None:
        if endpoint not in scripts:
            raise ChannelRefused(f"{endpoint} is not reached")
        ScriptedMember.__init__(self, scripts[endpoint])

    return init
