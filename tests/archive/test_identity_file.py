"""identity.dat: two files of which one is enough, damage of any bit is seen, and a change is in one step."""

import pytest

from cluster.archive.files import OsFiles
from cluster.archive.identity_file import IDENTITY_FILE_NAME, read_identity, write_identity
from cluster.errors import OtherMembers
from cluster.protocol.identity import ClusterIdentity, generation_of

IDENTITY = ClusterIdentity(0, 1_795_233_405_608, -7).with_members(3, (0, 1, 2))
NEXT = ClusterIdentity(generation_of("restore", 96, 4)).with_members(3, (0, 1, 4))


@pytest.fixture
def folders(tmp_path):
    for name in ("cluster", "archive"):
        (tmp_path / name).mkdir()
    return OsFiles(), str(tmp_path / "cluster"), str(tmp_path / "archive")


def test_what_is_written_is_read_and_one_file_is_enough(folders):
    files, cluster, archive = folders
    assert read_identity(*folders).identity is None

    for lost in (cluster, archive):
        write_identity(*folders, IDENTITY)
        files.unlink(f"{lost}/{IDENTITY_FILE_NAME}")
        found = read_identity(*folders)
        assert found.identity == IDENTITY and found.identity.member_ids == (0, 1, 2)
        assert not found.damage


@pytest.mark.parametrize("lost", ["cluster", "archive", "both"])
def test_every_flipped_bit_and_every_missing_end_is_damage_and_the_other_file_is_believed(
    folders, tmp_path, lost
):
    write_identity(*folders, IDENTITY)
    paths = [
        tmp_path / name / IDENTITY_FILE_NAME for name in ("cluster", "archive") if lost in (name, "both")
    ]
    data = paths[0].read_bytes()
    flipped = [data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :] for at in range(len(data))]
    for broken in flipped + [data[:length] for length in range(len(data))]:
        for path in paths:
            path.write_bytes(broken)
        found = read_identity(*folders)
        assert found.identity == (None if lost == "both" else IDENTITY)
        assert [damage.path for damage in found.damage] == list(map(str, paths))


def test_files_of_two_clusters_are_no_identity(folders, tmp_path):
    write_identity(*folders, NEXT)
    other = (tmp_path / "cluster" / IDENTITY_FILE_NAME).read_bytes()
    write_identity(*folders, IDENTITY)
    (tmp_path / "archive" / IDENTITY_FILE_NAME).write_bytes(other)
    with pytest.raises(OtherMembers, match=r"generation 0, members 0, 1, 2, expected .*members 0, 1, 4"):
        read_identity(*folders)


def test_a_change_that_is_interrupted_anywhere_leaves_the_old_one_or_the_new_one(folders):
    class Dies(Exception):
        pass

    class DyingFiles(OsFiles):
        left = 0

        def _step(self):
            self.left -= 1
            if self.left < 0:
                raise Dies

        def rename(self, *arguments):
            self._step()
            super().rename(*arguments)

        def unlink(self, *arguments):
            self._step()
            super().unlink(*arguments)

    seen = set()
    for steps in range(4):
        write_identity(*folders, IDENTITY)
        files = DyingFiles()
        files.left = steps
        try:
            write_identity(files, *folders[1:], NEXT)
        except Dies:
            pass
        seen.add(read_identity(*folders).identity)
    assert seen == {IDENTITY, NEXT}


def test_a_generation_is_the_same_on_every_host_and_never_the_first():
    assert generation_of("restore", 96, 4) == generation_of("restore", 96, 4) == NEXT.generation
    made = {
        generation_of(what, end, term)
        for what in ("restore", "promote")
        for end in (0, 96)
        for term in (0, 4)
    }
    assert len(made) == 8
    assert all(0 < generation < 1 << 63 for generation in made)
