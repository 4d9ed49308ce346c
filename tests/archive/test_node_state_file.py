"""node-state.dat as a file: what it says is what was written last, or it is damaged, or it is Aeron's."""

from __future__ import annotations

import pytest

from cluster.archive.files import OsFiles
from cluster.archive.node_state_file import NodeStateFile
from cluster.errors import LogDamaged
from cluster.protocol.node_state import NODE_STATE_FILE_LENGTH, CandidateTerm, encode_node_state
from tests.archive.logs import T0

SEALED = 72  # bytes


def test_the_candidate_term_only_grows_and_is_read_again(tmp_path):
    state = NodeStateFile.open(str(tmp_path), files=OsFiles())
    assert state.candidate_term_id == -1
    assert state.propose(4, 960, T0) == 4
    assert state.propose(3, 9999, T0 + 1) == 4
    state.close()
    again = NodeStateFile.open(str(tmp_path), files=OsFiles())
    assert tuple(again.candidate_term) == (4, T0, 960)


@pytest.mark.parametrize("damage", [b"", bytes(64), b"\xff" * 64])
def test_a_garbled_node_state_is_named(tmp_path, damage):
    (tmp_path / "node-state.dat").write_bytes(damage)
    with pytest.raises(LogDamaged, match=r"node-state\.dat"):
        NodeStateFile.open(str(tmp_path), files=OsFiles())


def test_no_flipped_bit_is_believed(tmp_path):
    """The term is as it was, or the file is damaged."""
    state = NodeStateFile.open(str(tmp_path), files=OsFiles())
    state.propose(5, 960, T0)
    state.close()
    path = tmp_path / "node-state.dat"
    whole = path.read_bytes()
    damaged = 0
    for bit in range(8 * SEALED):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            found = NodeStateFile.open(str(tmp_path), files=OsFiles())
        except LogDamaged as damage:
            assert damage.path == str(path)
            damaged += 1
            continue
        assert tuple(found.candidate_term) == (5, T0, 960), bit
        found.close()
        assert path.read_bytes() == whole, "it is whole again"
    assert damaged == 8 * (SEALED - 4), "all but the magic number"


def test_one_of_aeron_is_believed_once_and_then_has_a_checksum(tmp_path):
    path = tmp_path / "node-state.dat"
    path.write_bytes(encode_node_state(CandidateTerm(7, T0, 960)).ljust(NODE_STATE_FILE_LENGTH, b"\0"))
    NodeStateFile.open(str(tmp_path), files=OsFiles(), write=False).close()
    assert path.read_bytes()[64:] == bytes(NODE_STATE_FILE_LENGTH - 64), "a look changes nothing"
    state = NodeStateFile.open(str(tmp_path), files=OsFiles())
    assert state.candidate_term_id == 7
    state.propose(8, 1920, T0)
    state.close()

    data = bytearray(path.read_bytes())
    assert len(data) == NODE_STATE_FILE_LENGTH
    assert data[:64] == encode_node_state(CandidateTerm(8, T0, 1920))
    data[24] ^= 2
    path.write_bytes(data)
    with pytest.raises(LogDamaged, match=r"node-state\.dat at offset 24: checksum mismatch"):
        NodeStateFile.open(str(tmp_path), files=OsFiles())


def test_a_term_that_cannot_be_is_damage_without_a_checksum_too(tmp_path):
    data = encode_node_state(CandidateTerm(-2, T0, 960)).ljust(NODE_STATE_FILE_LENGTH, b"\0")
    (tmp_path / "node-state.dat").write_bytes(data)
    with pytest.raises(LogDamaged, match="candidate term -2 cannot be"):
        NodeStateFile.open(str(tmp_path), files=OsFiles())
