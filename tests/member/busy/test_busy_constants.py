"""What compiled turns know by number is what the rest of the tree has by name."""

import ast
from itertools import pairwise
from pathlib import Path

import numpy as np

import cluster.log
from cluster.archive import append_and_sync, file_calls, proof_slots
from cluster.consensus import quorum
from cluster.log.connection_table import PART_BYTES
from cluster.log.kernel import SHARED_MODULES
from cluster.member.busy import envelopes, remote, system, turn, words
from cluster.member.frames import APPEND_POSITION, BLOCK, COMMIT_POSITION, consensus_frame
from cluster.node.module_link import ANSWERS_BYTES_MAX
from cluster.protocol import streams
from cluster.protocol.consensus import AppendPosition, CommitPosition
from cluster.protocol.enums import AppendPositionFlags, ClusterControlToggle, NodeControlToggle
from cluster.protocol.service_link import LogLimit, ServiceAnswers, ServicePosition
from cluster.transport.message_frames import link_frame

FOLDER = Path(turn.__file__).parent
WITH_KERNELS = [path.stem for path in FOLDER.glob("*.py") if "@routine" in path.read_text()]


def test_streams_and_kinds_are_those_of_the_protocol():
    assert envelopes.CONSENSUS_STREAM == streams.CONSENSUS
    for message, kind in (
        (AppendPosition(1, 2, 3, AppendPositionFlags.NONE), envelopes.APPEND_POSITION_KIND),
        (CommitPosition(1, 2, 3), envelopes.COMMIT_POSITION_KIND),
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
    assert (
        int.from_bytes(frame[envelopes.LEADERSHIP_TERM_AT : envelopes.LEADERSHIP_TERM_AT + 8], "little") == 11
    )
    assert int.from_bytes(frame[envelopes.POSITION_AT : envelopes.POSITION_AT + 8], "little") == 12
    assert frame[envelopes.REPORT_FLAGS_AT] == AppendPositionFlags.CATCHUP
    COMMIT_POSITION.pack_into(frame, BLOCK, 21, 22, 23)
    assert int.from_bytes(frame[envelopes.POSITION_AT : envelopes.POSITION_AT + 8], "little") == 22


def test_what_is_said_to_a_services_process_and_by_it_lies_where_the_turn_looks():
    def word(frame, place, length=8):
        return int.from_bytes(frame[place : place + length], "little")

    limit = link_frame(LogLimit(41))
    assert len(limit) == words.LIMIT_LENGTH
    assert word(limit, remote.BLOCK_AT) == 41
    assert word(limit, remote.STREAM_AT, 4) == remote.LINK_STREAM == streams.LINK
    position = link_frame(ServicePosition(42, 43, 44))
    assert word(position, envelopes.SBE_AT) & envelopes.KIND_MASK == remote.SERVICE_POSITION
    assert word(position, 0, 4) == remote.POSITION_FRAME_LENGTH
    assert [word(position, remote.BLOCK_AT + place) for place in (0, 8, 16)] == [42, 43, 44]
    columns = np.arange(1, 13, dtype=np.int64).reshape(6, 2)
    answers = link_frame(ServiceAnswers(45, columns.tobytes(), b"payloads"))
    assert word(answers, envelopes.SBE_AT) & envelopes.KIND_MASK == remote.SERVICE_ANSWERS
    assert word(answers, remote.BLOCK_AT) == 45
    assert word(answers, remote.COLUMNS_LENGTH_AT, 4) == columns.nbytes == 2 * remote.ROW_BYTES
    assert word(answers, remote.COLUMNS_AT) == 1
    assert PART_BYTES >= ANSWERS_BYTES_MAX + 1024, "half a message of answers waits in compiled turns"


def test_places_in_scratch_do_not_overlap():
    assert words.HEADER_AT + 32 == words.FRAME_AT, "a position goes right behind its envelope's header"
    places = [
        (words.TIME_AT, 16),
        (words.PIECES_AT, 48),
        (words.HEADER_AT, 32 + envelopes.POSITION_FRAME_LENGTH),
        (words.LIMIT_AT, words.LIMIT_LENGTH),
        (words.EVENTS_AT, words.READY_MAX * system.EVENT_LENGTH),
        (words.SCRATCH, 0),
    ]
    for (begin, length), (following, _) in pairwise(places):
        assert begin + length <= following


def test_the_cache_of_the_turn_is_checked_by_every_module_that_is_compiled_into_it():
    """Else it goes on with what another file said when it was compiled."""
    declared = set(turn.MODULES) | {f"cluster.log.{name}" for name in SHARED_MODULES}
    assert {f"cluster.member.busy.{name}" for name in WITH_KERNELS} - {"cluster.member.busy.turn"} <= declared
    for path in (
        *(FOLDER / f"{name}.py" for name in WITH_KERNELS),
        *map(Path, (quorum.__file__, append_and_sync.__file__, file_calls.__file__, proof_slots.__file__)),
    ):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("cluster."):
                whole = {f"{node.module}.{name.name}" for name in node.names}  # where it names modules
                assert node.module in declared or whole <= declared, path
    for module in turn.MODULES:
        if module.startswith("cluster.log."):
            assert (Path(cluster.log.__file__).parent / f"{module.rpartition('.')[2]}.py").exists()
