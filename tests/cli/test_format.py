"""``cluster format``: what is formatted for one cluster is a member of no other."""

import json

import pytest

from cluster.cli.main import main
from cluster.errors import OtherMembers
from cluster.node.node import ClusterNode
from tests.node.processes import keys_of


@pytest.fixture
def formatted(tmp_path, capsys):
    """Format a directory of a cluster of one; returns status, output and error."""
    keys = keys_of(tmp_path)
    config = tmp_path / "node.toml"

    def run(name, **more):
        given = {**keys, **more}
        config.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in given.items()))
        status = main(["format", "--config", str(config), "--name", name])
        return status, *capsys.readouterr()

    run.keys = keys
    return run


def test_a_directory_is_formatted_once_for_one_cluster_and_starts_as_that(formatted, tmp_path):
    status, first, _ = formatted("orders")
    assert (status, first.startswith(f"{tmp_path}/member-0: generation ")) == (0, True)
    assert formatted("orders")[1] == first.rstrip() + ", as before\n"
    status, _, err = formatted("payments")
    assert status == 2 and "expected generation" in err
    with pytest.raises(OtherMembers, match="cluster_id = 7 is configured"):
        ClusterNode.launch(**formatted.keys, cluster_id=7)
    with ClusterNode.launch(**formatted.keys) as node:
        assert node.is_running
    assert formatted("orders")[0] == 0, "its member has started"


def test_files_of_a_member_are_not_formatted(formatted, tmp_path):
    (tmp_path / "member-0" / "archive").mkdir(parents=True)
    (tmp_path / "member-0" / "archive" / "0-0.rec").touch()
    status, _, err = formatted("orders")
    assert status == 2 and err.endswith("0-0.rec is here, expected an empty directory\n")
