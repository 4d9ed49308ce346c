"""``cluster tool restore`` says how to go on where an attempt has failed."""

from tests.archive.logs import a_log
from tests.archive.members import write_member

GROUP = "tool"


def test_a_restore_that_failed_after_its_first_member_is_finished_member_by_member(run, tmp_path):
    write_member(tmp_path / "backup", a_log(5))
    to = tmp_path / "restored"
    (to / "member-1" / "in-the-way").mkdir(parents=True)
    restore = ("restore", "--from", tmp_path / "backup", "--to", to)

    assert run(*restore)[2].startswith(f"{to}/member-1: is there already, expected a directory")
    (to / "member-1" / "in-the-way").rmdir()
    status, out, err = run(*restore)

    assert (status, out) == (2, "")
    assert err == (
        f"{to}/member-0: is there already, and whole; if this restore has made it, make the missing ones by "
        "themselves: --member 1, --member 2\n"
    )
    for number in (1, 2):
        status, out, _ = run(*restore, "--member", number)
        assert (status, out.partition(":")[0]) == (0, f"{to}/member-{number}")
    assert "expected a directory to be made" in run(*restore)[2], "all of them are there"
