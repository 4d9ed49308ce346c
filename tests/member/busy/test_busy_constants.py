"""What compiled turns know by number is what the rest of the tree has by name."""

import ast
from itertools import pairwise
from pathlib import Path

import cluster.log
from cluster.archive import append_and_sync, file_calls, proof_slots
from cluster.consensus import quorum
from cluster.log.connection_table import PART_BYTES
from cluster.log.kernel import SHARED_MODULES
from cluster.member.busy import envelopes, system, turn, words
from cluster.node.module_link import ANSWERS_BYTES_MAX
from cluster.protocol.consensus import AppendPosition, CommitPosition
from cluster.protocol.enums import ClusterControlToggle, NodeControlToggle
from cluster.protocol.service_link import LogLimit
from cluster.transport.message_frames import link_frame

FOLDER = Path(turn.__file__).parent
WITH_KERNELS = [path.stem for path in FOLDER.glob("*.py") if "@routine" in path.read_text()]


def test_what_an_operator_asks_for_lies_above_neutral():
    for toggle in (ClusterControlToggle, NodeControlToggle):
        assert words.TOGGLE_NEUTRAL == toggle.NEUTRAL == toggle.INACTIVE + 1
        assert all(value >= toggle.INACTIVE for value in toggle)


def test_term_and_position_of_a_report_and_of_a_commit_lie_in_the_same_place():
    for name in ("leadership_term_id", "log_position"):
        assert CommitPosition.offset_of(name) == AppendPosition.offset_of(name)


def test_what_is_said_to_a_services_process_and_by_it_has_room():
    assert len(link_frame(LogLimit(41))) == words.LIMIT_LENGTH
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
    declared = {*turn.MODULES, *SHARED_MODULES}
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
