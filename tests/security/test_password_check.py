"""Passwords beside the duty cycle: a turn for each user, bounds, and no check twice."""

import threading

import pytest

from cluster.security import password_check
from cluster.security.password_check import WAITING_MAX, PasswordCheck
from tests.node.processes import await_that


class Digest:
    """Fits its own password; every check waits until the test lets it go on."""

    def __init__(self, name, password, checks):
        self.name = name
        self.password = password
        self._checks = checks

    def fits(self, secret):
        self._checks.began.append(self.name)
        assert self._checks.may_go_on.acquire(timeout=20)
        return secret == self.password

    def __str__(self):
        return self.name


class Checks:
    """A check whose steps the test takes."""

    def __init__(self, monkeypatch):
        self.began = []
        self.may_go_on = threading.Semaphore(0)
        monkeypatch.setattr(password_check, "password_digest", lambda _: self.digest("nobody", None))
        self.check = PasswordCheck()
        self.known = {name: self.digest(name, b"right") for name in ("alice", "bob", "carol")}

    def digest(self, name, password):
        return Digest(name, password, self)

    def ask(self, user, password=b"right"):
        return self.check.is_right(user, password, self.known.get(user))

    def let(self, count=1):
        self.may_go_on.release(count)

    def decided(self, user, password=b"right"):
        return await_that(lambda: [a for a in [self.ask(user, password)] if a is not None], "decided")[0]


@pytest.fixture
def checks(monkeypatch):
    checks = Checks(monkeypatch)
    yield checks
    checks.let(1000)


def test_who_asks_does_not_wait_and_is_answered_later(checks):
    assert checks.ask("alice") is None
    assert checks.ask("alice") is None
    checks.let()
    assert checks.decided("alice") is True
    assert checks.began == ["alice"]


def test_who_was_right_is_right_again_without_a_check_and_who_was_wrong_is_checked_again(checks):
    checks.let(10)
    assert checks.decided("alice") is True
    assert checks.ask("alice") is True
    assert checks.decided("bob", b"wrong") is False
    assert checks.ask("bob", b"wrong") is None
    await_that(lambda: checks.began == ["alice", "bob", "bob"], "the second check of bob")


def test_a_new_digest_ends_what_was_remembered(checks):
    checks.let(10)
    assert checks.decided("alice") is True
    checks.known["alice"] = checks.digest("alice, changed", b"another")
    assert checks.decided("alice") is False


def test_who_floods_one_name_delays_another_by_one_check(checks):
    for number in range(100):
        checks.ask("alice", b"wrong %d" % number)
    await_that(lambda: checks.began == ["alice"], "the first check")
    checks.ask("bob")
    checks.let(2)
    await_that(lambda: "bob" in checks.began, "the check of bob")
    assert checks.began.index("bob") <= 2


def test_names_that_nobody_has_share_one_turn_and_are_checked_like_others(checks):
    for number in range(100):
        assert checks.ask(f"stranger {number}") is None
    checks.ask("bob")
    checks.let(3)
    await_that(lambda: "bob" in checks.began, "the check of bob")
    assert checks.began[:1] == ["nobody"] and checks.began.index("bob") <= 2


def test_a_flood_is_bounded_and_who_finds_no_room_asks_again(checks):
    for number in range(1000):
        checks.ask("alice", b"wrong %d" % number)
    checks.let(1000)
    await_that(lambda: len(checks.began) >= WAITING_MAX, "all that were taken")
    await_that(lambda: not checks.check._is_running, "the end of the queue")
    assert len(checks.began) <= WAITING_MAX + 1
    assert checks.decided("alice") is True


def test_a_check_that_fails_is_made_again_when_its_user_asks_again(checks):
    class NoMemory:
        def fits(self, secret):
            raise MemoryError

        def __str__(self):
            return str(right)  # so that it is the same attempt

    checks.let(10)
    right, checks.known["alice"] = checks.known["alice"], NoMemory()
    assert checks.ask("alice") is None
    await_that(lambda: not checks.check._is_running, "the failed check")
    checks.known["alice"] = right
    assert checks.decided("alice") is True
    assert checks.decided("bob") is True


def test_where_no_thread_can_start_the_next_who_asks_starts_it(checks, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    checks.let(10)
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        assert checks.ask("alice") is None
    assert checks.decided("alice") is True


def test_what_is_remembered_is_bounded_and_the_oldest_is_checked_again(checks, monkeypatch):
    monkeypatch.setattr(password_check, "REMEMBERED_MAX", 2)
    checks.let(4)
    for user in ("alice", "bob", "carol"):
        assert checks.decided(user)
    await_that(lambda: len(checks.check._answers) == 2, "alice is forgotten")
    assert checks.decided("alice")
    assert checks.began == ["alice", "bob", "carol", "alice"]
