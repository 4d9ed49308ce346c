"""One member that is only arrays, and log for it: what whole turns are tested with."""

import pytest

from tests.member.busy.one_member import OneMember, log_frames


@pytest.fixture
def leader():
    return OneMember(leads=True)


@pytest.fixture
def follower():
    return OneMember(leads=False)


@pytest.fixture(scope="package")
def log():
    return log_frames(b"one", b"two")
