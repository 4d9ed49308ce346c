"""What compiled turns know by number is what the rest of the tree has by name."""

import ast
import zlib
from itertools import pairwise
from pathlib import Path

import cluster.log
from cluster.archive import sync_proof
from cluster.log.kernel import SHARED_MODULES
from cluster.member.busy import envelopes, recorder, serving, system, turn, words
from cluster.member.frames import APPEND_POSITION, BLOCK, COMMIT_POSITION, CommitAckFrame, consensus_frame
from cluster.protocol import streams
from cluster.protocol.consensus import AppendPosition, CommitPosition
from cluster.protocol.enums import AppendPositionFlags, ClusterControlToggle, NodeControlToggle
from cluster.protocol.frame import frame_header
from cluster.transport import envelopes as python_envelopes

FOLDER = Path(turn.__file__).parent
WITH_KERNELS = [path.stem for path in FOLDER.glob("*.py") if "@routine" in path.read_text()]


def test_streams_and_kinds_are_those_of_the_protocol():
    assert envelopes.ENVELOPE_STREAM == streams.ENVELOPE
    assert envelopes.CONSENSUS_STREAM == streams.CONSENSUS
    assert envelopes.ENVELOPE_BYTES == python_envelopes.ENVELOPE_BYTES
    for message, kind in (
        (AppendPosition(1, 2, 3, AppendPositionFlags.NONE), envelopes.APPEND_POSITION),
        (CommitPosition(1, 2, 3), envelopes.COMMIT_POSITION),
    ):
        frame = consensus_frame(message)
        assert len(frame) == envelopes.POSITION_FRAME_LENGTH
        header = int.from_bytes(frame[envelopes.SBE_AT : envelopes.SBE_AT + 8], "little")
        assert header & envelopes.KIND_MASK == kind


def test_what_an_operator_asks_for_lies_above_neutral():
    for toggle in (ClusterControlToggle, NodeControlToggle):
        assert words.TOGGLE_NEUTRAL == toggle.NEUTRAL == toggle.INACTIVE + 1
        assert all(value >= toggle.INACTIVE for value in toggle)


def test_fields_of_messages_lie_where_the_turn_looks():
    frame = bytearray(consensus_frame(AppendPosition(0, 0, 0, AppendPositionFlags.NONE)))
    APPEND_POSITION.pack_into(frame, BLOCK, 11, 12, 13, AppendPositionFlags.CATCHUP)
    assert int.from_bytes(frame[envelopes.TERM_AT : envelopes.TERM_AT + 8], "little") == 11
    assert int.from_bytes(frame[envelopes.POSITION_AT : envelopes.POSITION_AT + 8], "little") == 12
    assert frame[envelopes.REPORT_FLAGS_AT] == AppendPositionFlags.CATCHUP
    COMMIT_POSITION.pack_into(frame, BLOCK, 21, 22, 23)
    assert int.from_bytes(frame[envelopes.POSITION_AT : envelopes.POSITION_AT + 8], "little") == 22
    ack = CommitAckFrame().of(31, 32, 33, 34)
    assert len(ack) == words.ACK_LENGTH
    for place, value in (
        (serving.SESSION_AT, 31),
        (serving.ACK_TERM_AT, 32),
        (serving.MESSAGES_AT, 33),
        (serving.ACK_POSITION_AT, 34),
    ):
        assert int.from_bytes(ack[place : place + 8], "little") == value


def test_an_envelopes_header_has_its_checksums_where_python_puts_them():
    header, *_ = python_envelopes.seal((bytes(32),), 0)[0]
    crc = zlib.crc32(bytes(32))
    assert header[envelopes.CONTENT_CRC_AT : envelopes.CONTENT_CRC_AT + 4] == crc.to_bytes(4, "little")
    plain = frame_header(64, session_id=0, stream_id=streams.ENVELOPE)
    assert header[: envelopes.CONTENT_CRC_AT] == plain[: envelopes.CONTENT_CRC_AT]
    assert envelopes.HEADER_CRC_AT == envelopes.CONTENT_CRC_AT + 4


def test_the_proof_file_is_written_as_the_archive_writes_it():
    assert recorder.PROOF_MAGIC == sync_proof._MAGIC
    assert (sync_proof._SLOT.size, sync_proof._DONE.size) == (recorder.SLOT_LENGTH, recorder.DONE_LENGTH)
    assert recorder.DONE_OFFSET == sync_proof._DONE_OFFSET
    assert (0, recorder.PROOF_PAGE) == sync_proof._SLOT_OFFSETS


def test_places_in_scratch_do_not_overlap():
    assert words.HEADER_AT + 32 == words.FRAME_AT, "a position goes right behind its envelope's header"
    places = [
        (words.TIME_AT, 16),
        (words.PIECES_AT, 48),
        (words.HEADER_AT, 32 + envelopes.POSITION_FRAME_LENGTH),
        (words.ACK_AT, words.ACK_LENGTH),
        (words.PROOF_AT, recorder.DONE_OFFSET + recorder.DONE_LENGTH),
        (words.EVENTS_AT, words.READY_MAX * system.EVENT_LENGTH),
        (words.SCRATCH, 0),
    ]
    for (begin, length), (following, _) in pairwise(places):
        assert begin + length <= following


def test_the_cache_of_the_turn_is_checked_by_every_module_that_is_compiled_into_it():
    """Else it goes on with what another file said when it was compiled."""
    declared = set(turn.MODULES) | {f"cluster.log.{name}" for name in SHARED_MODULES}
    assert {f"cluster.member.busy.{name}" for name in WITH_KERNELS} - {"cluster.member.busy.turn"} <= declared
    for name in WITH_KERNELS:
        tree = ast.parse((FOLDER / f"{name}.py").read_text())
        imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert {module for module in imported if module.startswith("cluster.")} <= declared, name
    for module in turn.MODULES:
        if module.startswith("cluster.log."):
            assert (Path(cluster.log.__file__).parent / f"{module.rpartition('.')[2]}.py").exists()
