"""What rots on a member's disk is never served, and had from the others, with nothing configured."""

from __future__ import annotations

import shutil

import pytest

from cluster import ClusterClient, ClusterNode
from cluster.errors import LogDamaged
from cluster.log.checksum import Checksum
from cluster.reader import LogReader
from tests.node.processes import await_that
from tests.node.three import Three, check_level, damage, said, send

MESSAGES = 300  # of 1,000 bytes: several segments


class SmallSegments(Three):
    """``settings``: archive_record_checksum of each member; None where it is not configured."""

    def __init__(self, tmp_path, opened, settings) -> None:
        self.settings = settings
        super().__init__(tmp_path, opened)
        await_that(self.leader, "a leader")
        with ClusterClient.connect(self.endpoints) as client:
            send(client, MESSAGES, 1_000)
            client.await_committed(20)
        check_level(self, MESSAGES)

    def launch(self, member_id: int, **keys) -> ClusterNode:
        setting = self.settings[member_id]
        keys |= {"archive_segment_file_length": 64 * 1024, "log_term_length": 64 * 1024}
        return super().launch(
            member_id, **keys, **({} if setting is None else {"archive_record_checksum": setting})
        )

    def close(self) -> None:
        for node in self.nodes:
            node.close()

    def start_again(self, opened) -> None:
        self.nodes = [opened.enter_context(self.launch(i)) for i in range(3)]
        check_level(self, MESSAGES)


def held_by(node: ClusterNode) -> Checksum | None:
    with LogReader.open(dir=str(node.config.path)) as reader:
        return reader.log.checksum


def flip_in_payload(node: ClusterNode) -> None:
    """Of a member that does not run: a bit of a message's bytes, which nothing but a checksum can tell."""
    path = node.config.archive_path / "0-65536.rec"
    data = bytearray(path.read_bytes())
    data[data.index(b"80".ljust(900)) + 500] ^= 4
    path.write_bytes(data)


def test_a_flipped_bit_in_a_message_is_never_served_and_mended_at_the_next_start(tmp_path, opened):
    cluster = SmallSegments(tmp_path, opened, [None] * 3)
    cluster.close()
    damaged = cluster.nodes[0]
    flip_in_payload(damaged)
    mismatch = pytest.raises(LogDamaged, match=r"0-65536\.rec at offset \d+: checksum mismatch")
    with LogReader.open(dir=str(damaged.config.path)) as reader, mismatch:
        list(reader)

    cluster.start_again(opened)
    assert "log repaired: " in said(cluster.nodes[0])


def test_members_that_hold_checksums_of_other_kinds_or_none_follow_and_mend_each_other(tmp_path, opened):
    """Each goes on with its own, also when another is configured later."""
    cluster = SmallSegments(tmp_path, opened, ["none", "crc32c", "crc32"])
    cluster.close()
    for node, base in zip(cluster.nodes, (65536, 131072, 196608), strict=True):
        damage(node, base, "none")

    cluster.settings = ["crc32c", "crc32", None]
    cluster.start_again(opened)
    for node in cluster.nodes:
        assert "log repaired: " in said(node)
    assert [held_by(node) for node in cluster.nodes] == [None, Checksum.CRC_32C, Checksum.CRC_32]


@pytest.mark.parametrize(("own", "of_others"), [("none", "crc32c"), ("crc32c", "none")])
def test_a_wiped_member_is_filled_by_members_that_hold_another_kind_and_keeps_its_own(
    tmp_path, opened, own, of_others
):
    cluster = SmallSegments(tmp_path, opened, [own, of_others, of_others])
    cluster.close()
    wiped = cluster.nodes[0].config.path
    shutil.rmtree(wiped)
    cluster.start_again(opened)
    assert held_by(cluster.nodes[0]) == (Checksum.CRC_32C if own == "crc32c" else None)
    with LogReader.open(dir=str(wiped)) as reader:
        assert sum(len(run) for _, run in reader.blocks()) == reader.end_position()


def test_a_cluster_that_was_made_without_checksums_starts_with_the_default_and_tells_no_damage(
    tmp_path, opened
):
    cluster = SmallSegments(tmp_path, opened, ["none"] * 3)
    cluster.close()
    cluster.settings = [None] * 3
    cluster.start_again(opened)
    for node in cluster.nodes:
        assert "damaged" not in said(node)
        assert held_by(node) is None
