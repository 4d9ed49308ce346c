"""What strangers try first, and is wrong, is answered with what to do."""

import pytest

from cluster.cli.main import main
from cluster.cli.top import with_lag
from cluster.errors import ClusterError
from cluster.member.control import transfer_toggle
from cluster.node.control import ControlAction

ENDPOINTS = "0=h:9000,1=h:9010,2=h:9020"


def test_a_text_in_the_place_of_a_file_is_answered_with_how_to_send_it(capsys):
    assert main(["send", "--endpoints", "127.0.0.1:1", "hello"]) == 1
    said = capsys.readouterr().err
    again = "echo hello | cluster send --endpoints 127.0.0.1:1"
    assert said == f"hello: No such file or directory; to send text: {again}\n"


@pytest.mark.parametrize("verb", ["tool restore", "log tail", "archive verify"])
def test_a_verb_without_its_group_is_answered_with_both(capsys, verb):
    assert main([verb.split()[1], "--dir", "c1"]) == 2
    assert f"Did you mean '{verb}'?" in capsys.readouterr().err


def test_a_key_of_set_that_is_nearly_one_is_answered_with_that(capsys, tmp_path):
    assert main(["up", "--dir", str(tmp_path / "c"), "--set", "fil_sync_level=0"]) == 2
    assert "did you mean file_sync_level?" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("target", [3, 9])
def test_leadership_for_a_member_that_is_none_is_answered_with_those_that_are(target):
    with pytest.raises(ClusterError, match=f"there is no member {target}, expected one of 0, 1, 2"):
        ControlAction(transfer_toggle(target)).check_target(ENDPOINTS)


@pytest.mark.parametrize("toggle", [transfer_toggle(2), transfer_toggle(), 3])
def test_what_a_leader_can_try_is_left_to_it(toggle):
    ControlAction(toggle).check_target(ENDPOINTS)
    ControlAction(toggle).check_target("")


def test_a_member_that_does_not_run_has_no_lag():
    """What its counters say is of the past, and it is not on its way to anything."""
    running, stopped = ({"commitPosition": at, "isAlive": at > 5} for at in (9, 4))
    assert [member["lag"] for member in with_lag([running, stopped])] == [0, None]
