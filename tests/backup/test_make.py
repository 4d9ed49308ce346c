"""Members are changed over closed directories: nothing committed is lost, and the old ones start no more."""

import pytest

from cluster.archive.closed_file import CLOSED_FILE_NAME, read_last_words
from cluster.archive.files import replace
from cluster.archive.node_state_file import NodeStateFile
from cluster.archive.promises_file import read_promises, write_promises
from cluster.backup.close import close_member, why_not_counted, words_line
from cluster.backup.make import make_member, next_members, source_of
from cluster.backup.restore import MemberFolders, Place
from cluster.errors import ConfigurationError, DirectoryInUse
from cluster.member.disk.life_note import LifeNoteFile
from cluster.protocol.link import PromiseState
from tests.member.cluster_steps import a_busy_cluster, note_of
from tests.member.in_memory.cluster import MS, SECOND, SimulatedCluster
from tests.member.in_memory.member import DIRECTORY
from tests.member.parted import Parted

CLUSTER, ARCHIVE = f"{DIRECTORY}/cluster", f"{DIRECTORY}/archive"
CLOSED = f"{CLUSTER}/{CLOSED_FILE_NAME}"


@pytest.fixture(autouse=True)
def _pieces(monkeypatch):
    """A segment is copied in several pieces, as one of 128 MiB."""
    monkeypatch.setattr("cluster.backup.restore.COPY_BYTES", 48 * 1024)


def close(member, files=None, boot_id="a boot"):
    folders = MemberFolders(files or member.files, CLUSTER, ARCHIVE)
    return close_member(folders, member.member_id, boot_id=boot_id, epoch_ms=lambda: 1)


def make(source, member, made, files=None):
    return make_member(
        MemberFolders(source.files, CLUSTER, ARCHIVE),
        Place(files or member.files, DIRECTORY),
        made,
        epoch_ms=lambda: 1,
    )


def changed(cluster, words, member_ids, source=None):
    """Members of a new cluster, all of whom begin with the best log; they do not run yet."""
    made = next_members(words, tuple(member_ids))
    new = SimulatedCluster(len(member_ids), 7, is_started=False)
    new.world.run_until(cluster.world.now_ns)
    for member in new.members:
        assert make(source or cluster.members[made.best.member_id], member, made)
    return new


def started(new):
    for member in new.members:
        member.start()
    new.await_leader(timeout_ns=90 * SECOND)
    new.await_level()
    return new


def applied_by(member):
    return [what for what in member.service.applied if what.startswith(b"0:")]


def kill_all(cluster):
    for member in cluster.members:
        if member.is_running:
            member.kill()


@pytest.mark.parametrize(("old", "new"), [(1, 3), (3, 5), (5, 3), (3, 1)])
def test_the_new_members_have_all_that_was_committed_and_stand_for_later_terms(old, new):
    cluster = a_busy_cluster(old)
    promised = list(cluster.clients[0].sent)
    kill_all(cluster)
    words = [close(member) for member in cluster.members[: old // 2 + 1]]
    assert not any(map(why_not_counted, words))

    changed_to = started(changed(cluster, words, range(new)))
    for member in changed_to.members:
        assert applied_by(member) == promised
    assert changed_to.leader.leadership_term_id > max(one.candidate_term_id for one in words)
    client = changed_to.add_client()
    client.send(b"0:new")
    changed_to.await_settled()
    changed_to.await_level()
    changed_to.check()


@pytest.mark.parametrize("closed", [(0, 1, 2), (0, 1, 4), (2, 3, 4)])
def test_what_only_three_of_five_have_is_kept_by_any_majority(closed):
    cluster = a_busy_cluster(5, messages=5)
    for number in (0, 1):
        cluster.members[number].kill()
    cluster.await_leader(timeout_ns=90 * SECOND)
    cluster.clients[0].send(b"0:late")
    cluster.await_settled()
    cluster.run(100 * MS)
    kill_all(cluster)
    words = [close(cluster.members[number]) for number in closed]
    made = next_members(words, (0, 1, 2))
    assert made.best.member_id in {2, 3, 4}
    new = started(changed(cluster, words, (0, 1, 2)))
    assert applied_by(new.members[0])[-1] == b"0:late"


def test_a_closed_member_starts_no_more_and_one_that_was_not_closed_is_counted_by_nobody():
    cluster = a_busy_cluster(3)
    for member in cluster.members:
        member.stop()
    words = [close(member) for member in cluster.members[:2]]
    for member in cluster.members:
        member.start()
    cluster.run(5 * SECOND)
    assert [member.is_running for member in cluster.members] == [False, False, True]
    assert "this member was closed (cluster tool close-member), and starts no more" in (
        cluster.members[0].death
    )
    assert cluster.members[0].process.end.exit_status == 2
    assert cluster.leader is None

    new = changed(cluster, words, range(3))
    left = new.members[2]  # runs over the old directory, in the new one's place
    put_back(left, contents_of(cluster.members[2]))
    for member in new.members:
        member.start()
    new.run_until(lambda: new.leader is not None)
    new.run(SECOND)
    assert any("member 2 is not counted: it is of generation 0, expected " in line for line in new.events)
    assert left.leadership_term_id < new.leader.leadership_term_id


@pytest.mark.slow
def test_closed_members_of_a_release_that_does_not_know_it_lead_nobody(monkeypatch):
    """They start as members without promises; the only one that was not closed commits nothing with them."""
    cluster = a_busy_cluster(3)
    for member in cluster.members:
        member.stop()
    for member in cluster.members[:2]:
        close(member)
    monkeypatch.setattr("cluster.member.disk.member_files.check_is_not_closed", lambda *_: None)
    for member in cluster.members:
        member.start()
    cluster.run(30 * SECOND)

    assert all(member.is_running and member.election is not None for member in cluster.members)
    assert not any(member.has_say for member in cluster.members[:2])


def test_a_member_that_runs_is_not_closed():
    cluster = a_busy_cluster(1)
    with pytest.raises(DirectoryInUse):
        close(cluster.members[0])


def test_the_words_say_which_cluster_it_was_and_what_it_promised():
    cluster = a_busy_cluster(3)
    cluster.run(SECOND)
    kill_all(cluster)
    member = cluster.members[1]
    words = close(member)
    assert words.identity.member_ids == (0, 1, 2) and words.identity.first_term_timestamp is not None
    assert (words.leadership_term_id, words.candidate_term_id) == (0, 0)
    assert read_last_words(member.files, CLOSED) == words
    assert words_line(words) == (
        f"member 1 of cluster 0, generation 0, members 0, 1, 2: the log to {words.log_position} of term 0, "
        "candidate term 0; promises and log are whole"
    )


def lost_promises(member):
    member.files.unlink(f"{CLUSTER}/node-state.dat")


def forgotten_promises(member):
    held = read_promises(member.files, CLUSTER)
    write_promises(member.files, CLUSTER, held.replace(state=PromiseState.LOST))


def damaged_promises(member):
    replace(member.files, f"{CLUSTER}/promises.dat", b"nonsense")


def fallen_candidate_term(member):
    lost_promises(member)
    NodeStateFile.open(CLUSTER, files=member.files).close()


def power_cut_at_level_0(member):
    life = LifeNoteFile(member.files, CLUSTER, boot_id="another boot", file_sync_level=0)
    life.begin()


def bad_sectors(member):
    member.files.open(f"{ARCHIVE}/0-0.rec", write=True).pwrite(bytes(1024), 4096)


def repair_needed(member):
    note_of(member).write("log from position 32 on", None)


@pytest.mark.parametrize(
    ("damage", "knows_promises", "is_log_whole"),
    [
        (lost_promises, False, True),
        (forgotten_promises, False, True),
        (damaged_promises, False, True),
        (fallen_candidate_term, False, True),
        (power_cut_at_level_0, False, False),
        (bad_sectors, True, False),
        (repair_needed, False, False),
    ],
)
def test_who_does_not_know_its_promises_or_all_of_its_log_does_not_count(
    damage, knows_promises, is_log_whole
):
    cluster = a_busy_cluster(3)
    for member in cluster.members:
        member.stop()
    damage(cluster.members[0])
    words = [close(member) for member in cluster.members[:2]]
    assert (words[0].knows_promises, words[0].is_log_whole) == (knows_promises, is_log_whole)
    assert why_not_counted(words[0]).endswith("it does not count")
    with pytest.raises(
        ConfigurationError,
        match=r"of 1 members count, expected those of 2 of members 0, 1, 2; of member 0 its (promises|log)",
    ):
        next_members(words, (0, 1))
    assert close(cluster.members[0]) == words[0], "what is said once is said again"
    next_members([*words, close(cluster.members[2])], (0, 1))


def test_words_that_are_not_of_one_cluster_are_refused():
    cluster = a_busy_cluster(3)
    kill_all(cluster)
    one, two, three = (close(member) for member in cluster.members)
    of_next = two.identity.replace(generation=7)
    other_cluster = two.identity.replace(cluster_id=9)
    for wrong, why in (
        (
            two.replace(cluster=(of_next,)),
            "not of the cluster of member 0: it is of generation 7, expected 0",
        ),
        (two.replace(cluster=(other_cluster,)), "cluster 9, not 0"),
        (two.replace(cluster=(two.identity.with_members(0, (0, 1)),)), "its cluster has members 0, 1, exp"),
        (two.replace(member_id=8), "its members are 0, 1, 2"),
        (one.replace(candidate_term_id=5), "member 0 has two last words"),
    ):
        with pytest.raises(ConfigurationError, match=why):
            next_members([one, three, wrong], (0, 1, 2))
    for ids in ((), (1, 0), (2, 2), (-1, 0)):
        with pytest.raises(ConfigurationError, match="expected ids of new members, each once"):
            next_members([one, two], ids)
    with pytest.raises(ConfigurationError, match="of 0 members count"):
        next_members([], (0,))


def test_a_log_that_is_not_the_best_makes_no_member():
    cluster = a_busy_cluster(3)
    lagging = cluster.followers[0]
    lagging.kill()
    send_more(cluster)
    kill_all(cluster)
    words = {f"member-{member.member_id}": close(member) for member in cluster.members}
    made = next_members(list(words.values()), (0, 1, 2))
    best = cluster.members[made.best.member_id]
    assert source_of(made, words) == f"member-{best.member_id}"
    with pytest.raises(ConfigurationError, match=rf"the best log is that of member {best.member_id}, to "):
        source_of(made, {"lagging": words[f"member-{lagging.member_id}"]})

    # The words of the best beside an older copy of its log.
    new = SimulatedCluster(1, 7, is_started=False)
    with pytest.raises(ConfigurationError, match="expected term and position"):
        make(lagging, new.members[0], made)
    assert not new.members[0].files.exists(f"{CLUSTER}/recording.log")


def test_logs_of_two_histories_make_no_members():
    """Two of three were put back to stale copies, and went on from there; the third was not seen again."""
    cluster = Parted()
    stale = cluster.members[1:]
    cluster.stop()
    copies = [member.backup() for member in stale]
    cluster.run_alone(0, 1, 2)
    for member, copy in zip(stale, copies, strict=True):
        member.restore(copy)
    cluster.run_alone(0, 1, 2, starting=(1, 2), lives=2)
    words = [close(member) for member in cluster.members]

    difference = r"members 0 \(here\) and 1 \(there\) are of two histories: term 1 "
    with pytest.raises(ConfigurationError, match=difference):
        next_members(words, (0, 1, 2))
    assert next_members(words[1:], (0, 1, 2)).best.log_end > words[0].log_end


def send_more(cluster):
    cluster.clients[0].send(b"0:more" + bytes(300))
    cluster.await_settled()


def test_a_directory_that_does_not_know_its_cluster_is_not_closed():
    cluster = a_busy_cluster(1)
    [member] = cluster.members
    member.stop()
    for folder in (CLUSTER, ARCHIVE):
        member.files.unlink(f"{folder}/identity.dat")
    with pytest.raises(ConfigurationError, match="does not know the members of its cluster"):
        close(member)
    assert not member.files.exists(CLOSED)


# ---- crashes


class Dies(Exception):
    """The process does, or the machine."""


class DyingFiles:
    """Those of a member, until so many changes are made."""

    CHANGES = {"rename", "unlink", "sync_directory", "make_directory"}
    OF_FILES = {"pwrite", "resize", "fullsync", "datasync", "allocate", "push"}

    def __init__(self, files, left):
        self._files = files
        self.left = left

    def _count(self):
        self.left -= 1
        if self.left < 0:
            raise Dies

    def __getattr__(self, name):
        found = getattr(self._files, name)
        return self._counted(found) if name in self.CHANGES else found

    def _counted(self, call):
        def counted(*arguments, **named):
            self._count()
            return call(*arguments, **named)

        return counted

    def open(self, path, *, write=False, create=False):
        if create:
            self._count()
        file = self._files.open(path, write=write, create=create)
        for name in self.OF_FILES if write or create else ():
            setattr(file, name, self._counted(getattr(file, name)))
        return file


def crashed(member, number):
    """What the next process finds: now and then after a power cut."""
    if number % 2:
        member.disk.power_cut()


def test_close_may_be_cut_off_anywhere_and_says_the_same_when_it_is_made_again():
    cluster = a_busy_cluster(3, messages=3)
    kill_all(cluster)
    member = cluster.members[0]
    before = contents_of(member)
    expected, number, closed = None, 0, 0
    while True:
        files = DyingFiles(member.files, number)
        try:
            words = close(member, files)
            break
        except Dies:
            crashed(member, number)
            closed += member.files.exists(CLOSED)
            words = close(member)
            assert expected in (None, words)
            expected = words
            put_back(member, before)
            number += 1
    assert words == expected and not why_not_counted(words)
    assert closed >= 1 and number > 10


def contents_of(member):
    return {path: bytes(member.disk.inode(path).cache) for path in member.disk.paths()}


def put_back(member, contents):
    member.disk.wipe()
    for folder in (CLUSTER, ARCHIVE, f"{DIRECTORY}/driver"):
        member.files.make_directory(folder)
    for path, data in contents.items():
        file = member.files.open(path, create=True)
        file.pwrite(data, 0)
        file.fullsync()
        file.close()
    for folder in (CLUSTER, ARCHIVE, f"{DIRECTORY}/driver"):
        member.files.sync_directory(folder)


def test_make_may_be_cut_off_anywhere_and_is_whole_when_it_is_made_again():
    cluster = a_busy_cluster(3, messages=3)
    kill_all(cluster)
    words = [close(member) for member in cluster.members]
    made = next_members(words, (0,))
    source = cluster.members[made.best.member_id]
    new = SimulatedCluster(1, 7, is_started=False)
    new.world.run_until(cluster.world.now_ns)
    [member] = new.members
    contents, number, finished = None, 0, 0
    while True:
        try:
            make(source, member, made, DyingFiles(member.files, number))
            break
        except Dies:
            crashed(member, number)
            finished += not make(source, member, made)
            kept = {
                path: data
                for path, data in contents_of(member).items()
                if path.endswith((".rec", ".dat", "log"))
            }
            assert contents in (None, kept)
            contents = kept
            member.disk.wipe()
            number += 1
    assert finished >= 1 and number > 20
    started(new)
    assert applied_by(member) == list(cluster.clients[0].sent)
