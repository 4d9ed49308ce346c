"""One member that is only arrays, and log for it: what whole turns are tested with."""

import pytest

from cluster.consensus import quorum
from cluster.log.kernel import as_python
from cluster.member.busy import buffer, receiving, serving
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


QUORUM_RULES = {"has_waited", "is_heartbeat_due", "is_report_due", "on_report_sent", "take_commit"}


@pytest.fixture
def rules_as_python(monkeypatch):
    """For routines that are called as Python: the rules they share with it, which index words alone."""
    for module in (quorum, buffer, receiving, serving):
        for name in ({"advance", "drop_part", "end_chunk"} | QUORUM_RULES) & vars(module).keys():
            monkeypatch.setattr(module, name, as_python(getattr(module, name)))
