"""``cluster tool close-member`` and ``make-members``: what they print, and what they refuse."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from cluster.archive.files import OsFiles
from cluster.archive.identity_file import read_identity, write_identity
from cluster.archive.node_state_file import NodeStateFile
from cluster.protocol.identity import ClusterIdentity
from tests.archive.logs import a_log
from tests.archive.members import write_member

GROUP = "tool"
IDENTITY = ClusterIdentity(0, 7, 8).with_members(0, (0, 1))


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """Directories of a cluster of two members that do not run."""
    for member_id, messages in enumerate((300, 200)):
        directory = tmp_path / "old" / f"member-{member_id}"
        write_member(directory, a_log(messages), member_id=member_id)
        folders = str(directory / "cluster"), str(directory / "archive")
        write_identity(OsFiles(), *folders, IDENTITY)
        node_state = NodeStateFile.open(folders[0], files=OsFiles())
        node_state.propose(3, 0, 0)
        node_state.close()
    return tmp_path / "old"


def test_a_closed_member_says_its_last_words_and_says_them_again(run, cluster):
    directory = cluster / "member-0"
    first = run("close-member", "--dir", directory, "--json")
    assert first == run("close-member", "--dir", directory, "--json")
    status, out, _ = first
    words = json.loads(out)
    assert (status, words["words"]) == (0, str(directory / "cluster" / "closed.dat"))
    assert (words["members"], words["candidateTermId"], words["firstLogSessionId"]) == ([0, 1], 3, 8)
    assert words["knowsPromises"] is words["isLogWhole"] is True

    _, out, _ = run("close-member", "--dir", directory)
    assert out.startswith("member 0 of cluster 0, generation 0, members 0, 1: the log to ")
    assert out.endswith(f"; promises and log are whole\n{words['words']}\n")


def test_members_are_made_of_the_best_log_once_enough_are_closed(run, cluster, tmp_path):
    making = ("make-members", "--to", tmp_path / "new", "--member-ids", "0,1,2", "--from")
    run("close-member", "--dir", cluster / "member-0")
    status, _, err = run(*making, cluster)
    assert status == 2
    assert "the last words of 1 members count, expected those of 2 of members 0, 1" in err

    run("close-member", "--dir", cluster / "member-1")
    status, _, err = run(*making, cluster / "member-1", "--words", cluster / "member-0/cluster/closed.dat")
    assert status == 2
    assert "the best log is that of member 0, to " in err
    status, _, err = run(*making, cluster, "--member", 7)
    assert (status, "--member 7: expected one of 0,1,2" in err) == (2, True)
    assert not (tmp_path / "new").exists()

    copied = shutil.copy(cluster / "member-1/cluster/closed.dat", tmp_path / "closed-1")
    status, out, _ = run(*making, cluster / "member-0", "--words", copied, "--member", 2)
    assert (status, len(out.splitlines())) == (0, 1)
    status, out, _ = run(*making, cluster, "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert (status, [line["isNew"] for line in lines]) == (0, [True, True, False])
    made = read_identity(OsFiles(), f"{lines[2]['dir']}/cluster", f"{lines[2]['dir']}/archive").identity
    assert made == IDENTITY.with_members(0, (0, 1, 2)).replace(generation=lines[0]["generation"])
    assert lines[0]["candidateTermId"] == 3


def test_members_are_made_of_directories_that_lie_apart_and_have_other_names(run, cluster, tmp_path):
    """As cluster_dir and archive_dir allow, and as Aeron's tools name them."""
    apart, named = cluster / "member-0", cluster / "member-1"
    (apart / "archive").rename(tmp_path / "apart")
    (named / "cluster").rename(named / "consensus-module")
    where = ("--archive-dir", tmp_path / "apart")
    status, out, _ = run("close-member", "--dir", apart, *where)
    assert (status, out.splitlines()[1]) == (0, str(apart / "cluster" / "closed.dat"))
    _, out, _ = run("close-member", "--dir", named)
    assert out.splitlines()[1] == str(named / "consensus-module" / "closed.dat")

    making = ("make-members", "--to", tmp_path / "new", "--member-ids", "0,1,2", *where, "--from", cluster)
    status, out, _ = run(*making)
    assert (status, len(out.splitlines())) == (0, 3)


@pytest.mark.parametrize("ids", ["", "0,x", "0,0", "-1,0"])
def test_ids_that_are_none_are_wrong_usage(run, cluster, tmp_path, ids):
    for member_id in (0, 1):
        run("close-member", "--dir", cluster / f"member-{member_id}")
    status, out, err = run("make-members", "--from", cluster, "--to", tmp_path / "new", f"--member-ids={ids}")
    assert (status, out) == (2, "")
    assert "expected ids" in err
