"""Decoders, files and texts that bytes of strangers reach: each names what became of its input."""

from __future__ import annotations

import struct
import tempfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from cluster.archive.archive import Archive
from cluster.archive.closed_file import CLOSED_FILE_NAME, read_last_words
from cluster.archive.directory_lock import read_mark_header
from cluster.archive.files import Files, OsFiles
from cluster.archive.identity_file import IDENTITY_FILE_NAME, identity_line, read_identity
from cluster.archive.mark_files import ClusterMarkFile
from cluster.backup.close import words_line
from cluster.backup.make import next_members
from cluster.consensus.histories import fault_of_events, history_difference, majority_elsewhere
from cluster.consensus.identity import cluster_difference
from cluster.counters import CountersFile, CountersReader
from cluster.errors import ClusterError
from cluster.log.entry_filter import EntryFilter, restored
from cluster.member.disk.fetched_recording import FetchedSnapshot
from cluster.member.disk.life_note import LIFE_FILE_NAME, LifeNoteFile
from cluster.protocol import decode, link, session, streams
from cluster.protocol.archive_control import ControlResponse, ControlResponseCode, decode_archive_answer
from cluster.protocol.catalog import RecordingDescriptor
from cluster.protocol.consumer import positions_in
from cluster.protocol.enums import AdminRequestType, ClusterComponentType
from cluster.protocol.frame import frame
from cluster.protocol.identity import ClusterIdentity
from cluster.protocol.last_words import LastWords
from cluster.protocol.life_note import LifeNote
from cluster.protocol.link_histories import TermEvent, TermEvents
from cluster.protocol.sbe import Message
from cluster.protocol.service_link import ServiceHello, ServicePosition, ServiceRaised, decode_service_link
from cluster.protocol.snapshot import SnapshotChecksum, SnapshotConsumer, SnapshotLane, SnapshotSession
from cluster.protocol.token import PositionToken, parse_token
from cluster.reader.consumers import ConsumerCount
from cluster.reader.lanes import LaneCount
from cluster.reader.snapshots import StoredSnapshot
from cluster.security.authenticators import TokenVerifier
from cluster.security.principals import PasswordDigest, parse_passwords, parse_tokens, token_digest
from cluster.security.rights import parse_rights
from cluster.security.text_file import read_lines
from cluster.transport.envelopes import check_header, seal, unseal
from cluster.transport.frame_splitter import FrameSplitter
from cluster.transport.message_frames import link_frame, message_frame
from spark_connector.decoding.decoders import JsonDecoder

VERSION = link.LINK_PROTOCOL_VERSION
PASSWORD = PasswordDigest(15, 8, 1, bytes(16), bytes(32))

CLIENT_MESSAGES: tuple[Message, ...] = (
    session.SessionConnectRequest(1, 102, 768, "aeron:ipc|resume-hash=00", b"name:word", "name=x version=1"),
    session.SessionMessageHeader(0, 1, 0),
    session.SessionKeepAlive(0, 1),
    session.SessionCloseRequest(0, 1),
    session.ChallengeResponse(2, 1, b"an answer"),
    session.AdminRequest(0, 1, 3, AdminRequestType.SNAPSHOT),
)
ARCHIVE_ANSWERS = (
    ControlResponse(1, 2, 3, ControlResponseCode.ERROR, 0x010B00, "no").encode(),
    struct.pack("<HHHH", 80, 22, 101, 12)
    + RecordingDescriptor(1, 2, 3, 4, -1, 0, -1, 0, 1, 2, 3, 4, 100, "a", "b", "c").encode_body(),
    struct.pack("<HHHHq", 8, 106, 101, 12, 1),
)
LINK_MESSAGES: tuple[Message, ...] = (
    link.Hello(-1, -1, 0, VERSION, link.ConnectionKind.CLIENT),
    link.SessionResume(4, 1, 0, resume_token=bytes(16)),
    link.StatusRequest(5),
    link.LogRequest(6, 0, -1, 4096),
    link.LogRequest(6, 0, -1, 4096, (link.Wanted(link.WantedKind.SESSION, 7),)),
    link.RecordingRequest(7, 0),
    link.EventsRequest(9, 0, -4096, 0, 0),
    link.LinkError(8, link.LinkErrorCode.REFUSED, "no"),
)


class Target:
    """``corpus`` are valid inputs; ``feed`` lets no exception out that strangers must not cause."""

    corpus: Sequence[bytes]
    slice = 2_000  # inputs of the slice in ``make test``

    def feed(self, data: bytes) -> str:
        """What became of the input: the same text for what went the same way."""
        raise NotImplementedError

    def check(self) -> None:
        """Now and then: whoever is no stranger is served as before."""

    def close(self) -> None:
        """Give back what it has opened."""


def named(error: ClusterError) -> str:
    """An error by its kind and words, whatever the values in it."""
    return f"{type(error).__name__}: {''.join(c for c in str(error)[:60] if c.isalpha() or c == ' ')}"


class Function(Target):
    """A function of bytes that raises ClusterError, and nothing else."""

    def __init__(self, function: Callable[[bytes], object], corpus: Sequence[bytes]) -> None:
        self._function = function
        self.corpus = corpus

    def feed(self, data: bytes) -> str:
        try:
            return type(self._function(data)).__name__
        except ClusterError as error:
            return named(error)


class Payload(Function):
    """One that Arrow reads."""

    slice = 500


class File(Target):
    """A function of a path, for files that others may have written."""

    slice = 300

    def __init__(self, name: str, read: Callable[[str], object], make: Callable[[str], object]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="fuzz-")
        self._path = Path(self._folder.name, name)
        self._read = read
        make(str(self._path))
        self.corpus = [self._path.read_bytes()]

    def feed(self, data: bytes) -> str:
        self._path.write_bytes(data)
        try:
            return type(self._read(str(self._path))).__name__
        except ClusterError as error:
            return named(error)

    def close(self) -> None:
        self._folder.cleanup()


def _split(data: bytes) -> int:
    """Frames of a gRPC message; pieces of any length, as they come."""
    splitter = FrameSplitter(1 << 16)
    for begin in range(0, len(data), 1000):
        splitter.split(data[begin : begin + 1000])
    return 0


def _unseal(data: bytes) -> int:
    buffer = np.frombuffer(data.ljust(32, b"\0"), np.uint8)
    start, crc = 0, 0
    while start + 32 <= len(buffer):
        check_header(buffer, start)
        if start + int.from_bytes(buffer[start : start + 4].tobytes(), "little") > len(buffer):
            return 1  # the rest has not come
        opened = unseal(buffer, start, crc)
        start, crc = opened.end, opened.crc
    return 0


def _read_counters(path: str) -> int:
    with CountersReader(path) as counters:
        counters.is_live(0)
        counters.counters()
        counters.errors()
        counters.types_and_values()
        counters.labels_and_values(203)
    return 0


def _make_counters(path: str) -> None:
    file = CountersFile.create(path, pid=1, now_ms=1)
    file.allocate(203, b"key", "commit-pos", 7)
    file.record_error("an error", 1)
    file.close()
    _shorten(path)


def _shorten(path: str) -> None:
    """Files are preallocated; an input need not be megabytes."""
    with open(path, "r+b") as file:
        file.truncate(min(Path(path).stat().st_size, 64 * 1024))


def _make_mark_file(path: str) -> None:
    folder = str(Path(path).parent)
    ClusterMarkFile.create(
        folder,
        files=OsFiles(),
        component_type=ClusterComponentType.CONSENSUS_MODULE,
        now_ms=1,
        cluster_id=0,
        member_id=0,
        aeron_directory="driver",
    ).close()
    _shorten(path)


class Checked(File):
    """Of a file under a checksum: the inputs are what is under it, which others may have written as well."""

    def __init__(self, name: str, read: Callable[[Files, str], object], corpus: Sequence[bytes]) -> None:
        super().__init__(name, lambda path: read(OsFiles(), path), _writes(""))
        self.corpus = corpus

    def feed(self, data: bytes) -> str:
        return super().feed(data + struct.pack("<I", zlib.crc32(data)))


def _read_life(files: Files, path: str) -> int:
    note = LifeNoteFile(files, str(Path(path).parent), boot_id="a boot", file_sync_level=1)
    note.begin()
    return note.committed_position


def _read_identity(files: Files, path: str) -> object:
    folder = str(Path(path).parent)
    found = read_identity(files, folder, folder).identity
    return found and (identity_line(found), cluster_difference(found, IDENTITY))


def _read_closed(files: Files, path: str) -> object:
    words = read_last_words(files, path)
    return words_line(words), next_members([words, WORDS], (0, 1))


def _compare_events(data: bytes) -> object:
    told = decode(data)
    if not isinstance(told, TermEvents) or fault_of_events(told) is not None:
        return None
    return history_difference(EVENTS, told), majority_elsewhere(EVENTS, {1: told, 2: told}, 2)


def _text(parse: Callable[[dict[str, str], str], object]) -> Callable[[str], object]:
    return lambda path: parse(read_lines(path), path)


def _writes(text: str) -> Callable[[str], object]:
    return lambda path: Path(path).write_text(text)


def _verify_token() -> Function:
    with tempfile.NamedTemporaryFile("w", prefix="fuzz-") as file:
        file.write(f"alice: {token_digest(b'secret')!s}\n")
        file.flush()
        verifier = TokenVerifier(file.name, lambda error: None)
    return Function(lambda credentials: verifier.verify(credentials, None), [b"secret", b"other"])


IDENTITY = ClusterIdentity(0, 7, 8).with_members(0, (0, 1, 2))
WORDS = LastWords(3, 2, 640, 480, 0, 640, 1, True, True, (IDENTITY,))
EVENTS = TermEvents(0, 640, 2, 480, (TermEvent(0, 0, 1000, 0, 7), TermEvent(2, 480, 2000, 1, 8)))
SERVICE_MESSAGES = (
    ServiceHello(0, 1, 1 << 16),
    ServicePosition(64, 0, 0),
    ServiceRaised(0, -1, False, "on_start", "ValueError", b"x.py:1", b"no", b"trace"),
)
ENCODED = [message.encode() for message in (*CLIENT_MESSAGES, *LINK_MESSAGES)]
FRAMES = [
    *(message_frame(message, 101) for message in CLIENT_MESSAGES),
    *(link_frame(message) for message in LINK_MESSAGES),
    frame(session.SessionMessageHeader(0, 1, 0).encode() + bytes(3000), session_id=0, stream_id=101),
]
SEALED = [b"".join(bytes(part) for part in seal((data,), 0)[0]) for data in FRAMES]

_LOG = frame(bytes(64), session_id=0, stream_id=streams.LOG) * 4
# A length, and that many bytes of log without what is not wanted.
THINNED = [
    struct.pack("<i", len(_LOG)) + EntryFilter(("TIMER",)).thinned(np.frombuffer(_LOG, np.uint8)).tobytes()
]


def _restore(data: bytes) -> np.ndarray:
    length = int.from_bytes(data[:4], "little") & 0xFFFF
    return restored(np.frombuffer(data[4:], np.uint8), length)


# Frames of a consensus module's snapshot, as a member sends them, with the checksum of those before the last.
def _joined(records: Sequence[bytes]) -> bytes:
    frames = b""
    for record in records:
        frames += frame(
            record, term_offset=len(frames), session_id=0, stream_id=streams.CONSENSUS_MODULE_SNAPSHOT
        )
    return frames


_RECORDS = [
    SnapshotSession(6, 4, 640, b"").encode(),
    SnapshotLane(3, 0, 17, 10, 64, 64, 5, 6, 1, b"orders", b"alice").encode(),
    SnapshotConsumer(64, 1, 9, b"billing", b"alice").encode(),
]
_LAST = SnapshotChecksum(zlib.crc32(_joined(_RECORDS))).encode()
SNAPSHOT = [_joined(_RECORDS), _joined([*_RECORDS, _LAST])]


class Snapshot(Function):
    """Frames that become a recording of an archive of our own."""

    slice = 100

    def __init__(self) -> None:
        super().__init__(self._taken, SNAPSHOT)
        self._folder = tempfile.TemporaryDirectory()
        files = OsFiles()
        self._archive = Archive.open(self._folder.name, files=files, file_sync_level=0, epoch_ms=int)

    def _taken(self, data: bytes) -> int:
        status = link.RecordingStatus(0, 0, 0, len(data), 0, 107, 0, 1 << 16, 1408)
        end = link.EndOfStream(0, len(data), link.LinkErrorCode.OK)
        copy = FetchedSnapshot("a member", [0], self._archive)
        try:
            for answer in (status, np.frombuffer(data, np.uint8), end):
                copy.take(answer)
            taken = self._folder.name, 0, -1, copy.recordings[0].recording_id, None, 0, 1 << 20, 0
            records = list(StoredSnapshot("a member", *taken).open())
        finally:
            copy.discard()
        groups, lanes = ConsumerCount(), LaneCount()
        groups.load(records, 1 << 20)
        lanes.load(records, 1 << 20)
        return len(groups.groups()) + len(lanes.lanes())


_DECODE_JSON = JsonDecoder(
    pa.struct([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("l", pa.list_(pa.decimal128(9, 2)))])
)
OBJECTS = [
    b'{"id": 7, "at": "2026-11-22T09:30:00.5+01:00", "l": [1.25, null, "-2"], "more": {"a": [true, NaN]}}',
    b' {"\\u0069d": -1e0, "name": "\\ud83d\\ude00 \xc3\xa4\\n"} ',
]


def _decode_json(data: bytes) -> int:
    """Alone and beside a good one: Arrow's reader takes all that are judged to be right."""
    found = _DECODE_JSON(pa.array([data, OBJECTS[0]], pa.binary()))
    assert found.failures.keys() <= {0} and " in row " not in found.failures.get(0, "")
    return len(found.column.slice(1).drop_null())


TARGETS: dict[str, Callable[[], Target]] = {
    "messages": lambda: Function(decode, ENCODED),
    "frames": lambda: Function(_split, FRAMES),
    "envelopes": lambda: Function(_unseal, SEALED),
    "service-messages": lambda: Function(
        lambda data: decode_service_link(data, 0, len(data)), [m.encode() for m in SERVICE_MESSAGES]
    ),
    "archive-answers": lambda: Function(decode_archive_answer, ARCHIVE_ANSWERS),
    "json-payloads": lambda: Payload(_decode_json, OBJECTS),
    "thinned-blocks": lambda: Function(_restore, THINNED),
    "snapshots": Snapshot,
    "consumer-positions": lambda: Function(
        lambda data: positions_in(data.decode("latin-1")), [b"64:billing\0640:audit"]
    ),
    "position-tokens": lambda: Function(
        lambda data: parse_token(data.decode(errors="surrogateescape")),
        [PositionToken("0:1:2", 64).to_text().encode(), b'{"v": 1, "position": 0}'],
    ),
    "credentials": _verify_token,
    "counters-file": lambda: File("cnc.dat", _read_counters, _make_counters),
    "mark-file": lambda: File(
        "cluster-mark.dat", lambda path: read_mark_header(OsFiles(), path), _make_mark_file
    ),
    "identity-file": lambda: Checked(IDENTITY_FILE_NAME, _read_identity, [IDENTITY.encode_body()]),
    "life-file": lambda: Checked(LIFE_FILE_NAME, _read_life, [LifeNote(640, 0, False, "a boot").encode()]),
    "closed-file": lambda: Checked(CLOSED_FILE_NAME, _read_closed, [WORDS.encode()]),
    "term-events": lambda: Function(_compare_events, [EVENTS.encode()]),
    "rights-file": lambda: File("rights", _text(parse_rights), _writes("alice: write, read\n*: admin\n")),
    "tokens-file": lambda: File(
        "tokens", _text(parse_tokens), _writes(f"# who\nalice: {token_digest(b'secret')!s}\n")
    ),
    "passwords-file": lambda: File("passwords", _text(parse_passwords), _writes(f"alice: {PASSWORD!s}\n")),
}
