"""Whom commands ask: all at once, also those that another one has reported."""

from threading import Barrier

import pytest

from cluster.cli.members import ask_members, each_once
from cluster.errors import ConfigurationError
from cluster.transport import member_status
from cluster.transport.endpoint import parse_endpoints
from cluster.transport.log_client import Unreachable
from tests.cli.answers import ANSWER

GROUP = "members"
ALL = "0=db0:9000,1=db1:9000,2=db2:9000"


@pytest.fixture
def cluster(monkeypatch):
    """Three members; ``asked`` are those that were, ``gone`` those that do not answer."""

    class Cluster:
        asked: list[str]
        gone: set[str]
        reported = ALL

        def wait(self):
            """What a member does before it answers."""

    cluster = Cluster()

    def status_of(endpoint, **_):
        cluster.asked.append(endpoint.host)
        cluster.wait()
        if endpoint.host in cluster.gone:
            raise Unreachable(f"{endpoint}: timed out")
        return ANSWER.replace(member_id=int(endpoint.host[-1]), ingress_endpoints=cluster.reported)

    cluster.asked, cluster.gone = [], set()
    monkeypatch.setattr(member_status, "member_status", status_of)
    return cluster


def asked(text: str) -> dict:
    """Without ids where the text has none, as commands give them."""
    given = parse_endpoints(text)
    if "=" not in text:
        given = {-1 - i: endpoint for i, endpoint in enumerate(given.values())}
    return {key: getattr(answer, "member_id", str(answer)) for key, answer in ask_members(given).items()}


@pytest.mark.parametrize("given", [ALL, "db0:9000,db1:9000,db2:9000"])
def test_all_that_are_given_are_asked_at_once_and_each_once(cluster, given):
    cluster.wait = Barrier(3, timeout=20).wait
    assert asked(given) == {0: 0, 1: 1, 2: 2}
    assert sorted(cluster.asked) == ["db0", "db1", "db2"]


def test_all_that_are_reported_are_asked_at_once_and_the_silent_ones_no_second_time(cluster):
    barrier = Barrier(2, timeout=20)
    cluster.wait = lambda: cluster.asked == ["db0"] or barrier.wait()
    cluster.gone = {"db1", "db2"}
    silent = "db{0}:9000: timed out"
    assert asked("db0:9000") == {0: 0, 1: silent.format(1), 2: silent.format(2)}
    assert sorted(cluster.asked) == ["db0", "db1", "db2"]

    cluster.asked.clear()
    cluster.wait = lambda: None
    assert asked("db2:9000,db1:9000,db0:9000") == {0: 0, 1: silent.format(1), 2: silent.format(2)}
    assert sorted(cluster.asked) == ["db0", "db1", "db2"]


def test_who_is_given_by_another_name_than_is_reported_is_one_member(cluster):
    cluster.reported = "0=10.0.0.0:9000"
    assert asked("db0:9000") == {0: 0} and cluster.asked == ["db0"]


def test_a_silent_address_is_another_name_of_a_member_as_soon_as_one_has_answered():
    silent, there = Unreachable("db1:9000: timed out"), ANSWER
    assert each_once({-2: silent, -1: silent}) == {-2: silent, -1: silent}
    assert each_once({-1: silent, 0: there, 1: silent}) == {0: there, 1: silent}


def test_a_mistake_of_ours_is_no_silence_of_a_member(cluster):
    def wait():
        raise ConfigurationError("no such file")

    cluster.wait = wait
    with pytest.raises(ConfigurationError):
        asked(ALL)
