"""The files of principals and rights: what they say, and what is said of wrong ones."""

import os
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from cluster.consensus.authentication import Right
from cluster.errors import ConfigurationError
from cluster.security import text_file
from cluster.security.authenticators import PasswordVerifier, TokenVerifier
from cluster.security.principals import (
    check_name,
    parse_passwords,
    parse_tokens,
    password_digest,
    put,
    token_digest,
)
from cluster.security.rights import RightsFile, parse_rights
from cluster.security.text_file import read_lines
from cluster.transport import file_look

CONNECT, READ_LOG, ADMIN = (111, 3), (1111, 10), (111, 26)


@pytest.fixture(autouse=True)
def looked_at_every_time(monkeypatch):
    monkeypatch.setattr(text_file, "LOOK_INTERVAL_NS", 0)
    monkeypatch.setattr(text_file, "PATIENCE_S", 60)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "file"


def rights_of(rights, principal):
    return [request for request in (CONNECT, READ_LOG, ADMIN) if rights.is_authorised(*request, 0, principal)]


@pytest.mark.parametrize(
    ("text", "granted"),
    [
        ("alice: write, read", [CONNECT, READ_LOG]),
        ("alice: admin\nbob: write", [ADMIN]),
        ("*: read\nbob: write", [READ_LOG]),
        ("*: read\nalice:", []),
        ("", []),
        ("# alice: write\n\n  alice :read\n", [READ_LOG]),
    ],
)
def test_a_principal_may_do_what_its_line_says_and_else_what_the_line_of_all_others_says(file, text, granted):
    file.write_text(text)
    rights = RightsFile(str(file), pytest.fail)
    assert rights_of(rights, b"alice") == granted
    assert not rights.is_authorised(111, 9999, None, b"alice")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("alice write", "line 1: expected name: value"),
        (": write", "line 1: expected name: value"),
        ("a: read\n\na: write", "line 3: a is given twice"),
        ("alice: writ", "alice has 'writ', expected write, read, admin"),
    ],
)
def test_a_file_of_rights_that_is_wrong_is_refused_by_line_and_word(file, text, complaint):
    file.write_text(text)
    with pytest.raises(ConfigurationError) as refused:
        RightsFile(str(file), pytest.fail)
    assert str(refused.value).endswith(complaint)
    assert str(file) in str(refused.value)


def test_a_file_that_changes_is_read_again_and_a_wrong_one_leaves_the_last_in_force(file):
    told = []
    file.write_text("alice: write")
    rights = RightsFile(str(file), told.append)

    file.write_text("alice: read, admin")
    assert rights_of(rights, b"alice") == [READ_LOG, ADMIN]

    file.write_text("alice: everything, really")
    assert rights_of(rights, b"alice") == [READ_LOG, ADMIN]
    assert rights_of(rights, b"alice") == [READ_LOG, ADMIN]
    assert [str(error) for error in told] == [
        f"{file}: alice has 'everything', expected write, read, admin; what it said before stays in force"
    ]

    file.unlink()
    assert rights_of(rights, b"alice") == [READ_LOG, ADMIN]
    assert len(told) == 2


@pytest.mark.parametrize("kind", ["missing", "folder", "binary"])
def test_what_is_no_file_of_text_is_named(file, kind):
    if kind == "folder":
        file.mkdir()
    elif kind == "binary":
        file.write_bytes(b"\xff\xfe: x")
    with pytest.raises(Exception, match=str(file)):
        read_lines(str(file))


def test_digests_are_of_their_secrets_and_show_nothing(file):
    password, token = password_digest(b"s3cret"), token_digest(b"t0ken")
    assert put(str(file), "alice", password) is False
    assert put(str(file), "alice", password) is True
    again = parse_passwords(read_lines(str(file)), str(file))["alice"]
    assert again.fits(b"s3cret") and not again.fits(b"s3cre") and not again.fits(b"")
    assert password_digest(b"s3cret").hash != password.hash, "each has a salt of its own"
    assert repr(password) == "PasswordDigest(…)" and repr(token) == "TokenDigest(…)"

    put(str(file), "alice", token)
    again = parse_tokens(read_lines(str(file)), str(file))["alice"]
    assert again.fits(b"t0ken") and not again.fits(b"other")


@pytest.mark.parametrize(("parse", "kind"), [(parse_tokens, "token"), (parse_passwords, "password")])
def test_a_line_that_is_no_digest_is_named_without_what_it_holds(parse, kind):
    with pytest.raises(ConfigurationError) as refused:
        parse({"alice": "hunter2"}, "F")
    assert f"F: alice has no digest of a {kind}, expected" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_a_salt_of_half_a_byte_is_no_salt():
    with pytest.raises(ConfigurationError, match="alice has no digest of a password"):
        parse_passwords({"alice": f"scrypt$15$8$1${'a' * 17}${'b' * 64}"}, "F")


def test_a_digest_that_takes_too_much_memory_is_refused():
    text = f"scrypt$20$8$1${'00' * 16}${'00' * 32}"
    with pytest.raises(ConfigurationError, match="more memory than 256 MiB"):
        parse_passwords({"alice": text}, "F")


@pytest.mark.parametrize("name", ["", " a", "a:b", "a\nb", "#", "x" * 257])
def test_a_name_that_no_file_can_hold_is_refused(name):
    with pytest.raises(ConfigurationError, match="principal"):
        check_name(name)


def test_a_file_of_principals_is_closed_to_others_whatever_the_umask_says(file):
    before = os.umask(0)
    try:
        put(str(file), "alice", token_digest(b"x"))
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


@pytest.mark.parametrize("mode", [0o600, 0o660])
def test_a_file_of_principals_keeps_its_mode_owner_and_group(file, mode, monkeypatch):
    """One that root rewrites stays readable for the member's group."""
    file.write_text("")
    file.chmod(mode)
    owners = []
    monkeypatch.setattr(os, "fchown", lambda fd, *owner: owners.append((os.fstat(fd).st_ino, *owner)))
    put(str(file), "alice", token_digest(b"x"))
    found = file.stat()
    assert stat.S_IMODE(found.st_mode) == mode
    assert owners == [(found.st_ino, found.st_uid, found.st_gid)]


def test_other_lines_of_a_file_of_principals_stay_as_they_are(file):
    old, new = token_digest(b"old"), token_digest(b"new")
    text = "# who may\n\n  feed :  {}\nalice: {}\n# feed: an old one\n"
    file.write_text(text.format(old, old).removesuffix("\n"))
    put(str(file), "alice", new)
    put(str(file), "bob", new)
    assert file.read_text() == text.format(old, new) + f"bob: {new}\n"
    put(str(file), "feed", new)
    assert file.read_text() == text.format(new, new).replace("  feed :  ", "feed: ") + f"bob: {new}\n"


def test_words_of_rights_are_those_of_the_enumeration():
    assert parse_rights({"a": "write, read, admin"}, "F") == {"a": frozenset(Right)}


def test_a_file_may_be_a_link_into_a_folder_that_is_swapped_as_kubernetes_does(tmp_path):
    for version, text in (("1", "alice: write"), ("2", "alice: read  ")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "rights").write_text(text)
    (tmp_path / "..data").symlink_to("1")
    (tmp_path / "rights").symlink_to("..data/rights")
    rights = RightsFile(str(tmp_path / "rights"), pytest.fail)
    assert rights_of(rights, b"alice") == [CONNECT]

    (tmp_path / "..data_tmp").symlink_to("2")
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")
    assert rights_of(rights, b"alice") == [READ_LOG]

    put(str(tmp_path / "rights"), "bob", token_digest(b"x"))
    assert (tmp_path / "rights").is_symlink() and "bob" in (tmp_path / "2" / "rights").read_text()


@pytest.mark.parametrize(
    ("make", "line", "credentials"),
    [
        (TokenVerifier, f"alice: {token_digest(b'x')}", b"x"),
        (PasswordVerifier, f"alice: {password_digest(b'x')}", b"alice:x"),
    ],
)
def test_an_emptied_file_of_principals_locks_nobody_out(file, make, line, credentials):
    told = []
    file.write_text(line)
    verifier = make(str(file), told.append)
    file.write_text("")
    deadline_s = time.monotonic() + 10
    while (verdict := verifier.verify(credentials, None)) is None and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert verdict.encoded_principal == b"alice"
    assert [str(error) for error in told] == [f"{file}: is empty; what it said before stays in force"]


@pytest.mark.parametrize("what", ["empty", "only a comment", "a fifo", "open to all"])
def test_a_file_that_says_nothing_or_is_none_leaves_the_last_in_force(file, what):
    told = []
    file.write_text("alice: write")
    rights = RightsFile(str(file), told.append)
    if what == "a fifo":
        file.unlink()
        os.mkfifo(file)
    elif what == "open to all":
        file.write_text("alice: admin")
        file.chmod(0o666)
    else:
        file.write_text("" if what == "empty" else "# nobody\n")
    for _ in range(2):
        assert rights_of(rights, b"alice") == [CONNECT]
    [error] = told
    assert str(error).startswith(str(file)) and str(error).endswith("; what it said before stays in force")


def test_a_file_system_that_does_not_answer_holds_nobody_up_and_is_told_once(file, monkeypatch):
    """As one over the network may: a look that hangs leaves in force what the file said."""
    answers, told, now_ns = threading.Event(), [], [0]
    monkeypatch.setattr(file_look, "monotonic_ns", lambda: now_ns[0])
    file.write_text("alice: write")
    rights = RightsFile(str(file), told.append)
    signature = text_file.signature

    def hanging(path):
        answers.wait(60)
        return signature(path)

    monkeypatch.setattr(text_file, "signature", hanging)
    monkeypatch.setattr(text_file, "PATIENCE_S", 0)
    file.write_text("alice: read")
    for now_ns[0] in range(0, 2 * file_look.SLOW_NS, file_look.SLOW_NS // 4):
        assert rights_of(rights, b"alice") == [CONNECT]
    [error] = told
    assert str(error) == f"{file}: no answer for 5 s; what it said before stays in force"

    monkeypatch.setattr(text_file, "PATIENCE_S", 60)
    answers.set()
    rights._file._file_look._ended.wait(60)
    assert rights_of(rights, b"alice") == [READ_LOG]
    assert len(told) == 1


def test_the_target_of_a_link_is_of_root_or_of_this_user(file, tmp_path, monkeypatch):
    file.write_text("alice: write")
    (tmp_path / "link").symlink_to(file)
    assert read_lines(str(tmp_path / "link")) == {"alice": "write"}
    if os.geteuid() == 0:
        os.chown(file, 4711, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 4712)
    with pytest.raises(ConfigurationError, match="link: is of user"):
        read_lines(str(tmp_path / "link"))


@pytest.mark.parametrize(
    ("parse", "digest"), [(parse_tokens, token_digest), (parse_passwords, password_digest)]
)
def test_two_secrets_of_a_principal_are_good_until_the_next_is_put_alone(file, parse, digest):
    def good():
        known = parse(read_lines(str(file)), str(file))["alice"]
        assert repr(known) == "Digests(…)"
        return [secret for secret in (b"one", b"two", b"three") if known.fits(secret)]

    put(str(file), "alice", digest(b"one"), keeps=True)
    assert good() == [b"one"]
    put(str(file), "alice", digest(b"two"), keeps=True)
    assert good() == [b"one", b"two"]
    put(str(file), "alice", digest(b"three"), keeps=True)
    assert good() == [b"two", b"three"], "the last and the one before"
    put(str(file), "alice", digest(b"three"))
    assert good() == [b"three"]
    three = ", ".join([str(digest(b"x"))] * 3)
    with pytest.raises(ConfigurationError, match="alice has 3 secrets, expected 2 at most"):
        parse({"alice": three}, "F")


def test_a_secret_that_is_put_in_place_is_on_the_disk_before_the_old_one_is_gone(file, monkeypatch):
    calls = []
    for name in ("fsync", "replace"):
        call = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda *given, call=call, name=name: (calls.append(name), call(*given))[1]
        )
    put(str(file), "alice", token_digest(b"one"))

    assert calls == ["fsync", "replace", "fsync"]  # the last one is the folder's


def test_principals_that_are_put_at_the_same_time_are_all_there(tmp_path):
    file = str(tmp_path / "tokens")
    names = [f"user{number}" for number in range(32)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: put(file, name, token_digest(b"x")), names))
    assert sorted(read_lines(file)) == sorted(names)


def test_a_file_that_cannot_be_read_for_a_moment_is_reported_once_and_read_later(file, monkeypatch):
    file.write_text("alice: read")
    told = []
    rights = RightsFile(str(file), told.append)
    file.write_text("alice: admin, read")

    def refuse(*_: object) -> None:
        raise ConfigurationError(f"{file}: cannot be read: Too many open files")

    with monkeypatch.context() as full:
        full.setattr(text_file, "read_named_file", refuse)
        assert [rights_of(rights, b"alice") for _ in range(2)] == [[READ_LOG]] * 2
    assert [str(error).count("Too many open files") for error in told] == [1]
    assert rights_of(rights, b"alice") == [READ_LOG, ADMIN]
    assert len(told) == 1
