"""Strangers get the descriptors that the log does not need, and no more than there are."""

import resource

import pytest

from cluster.errors import ConfigurationError
from cluster.node import descriptors
from cluster.node.descriptors import CONNECTION_COST, KEPT, READER_COST, READERS_MIN, fit_descriptors
from cluster.transport.bounds import Bounds

BOUNDS = Bounds(connections_max=1000, readers_max=50)
LEFT = 256 - KEPT - BOUNDS.greetings_max  # of so few
WANTED = KEPT + BOUNDS.greetings_max + 1000 * CONNECTION_COST + 50 * READER_COST


@pytest.fixture
def limits(monkeypatch):
    """The process's soft and hard limit, as a list that is changed by raising them."""
    limits = [1024, 4096]
    monkeypatch.setattr(descriptors.resource, "getrlimit", lambda kind: tuple(limits))
    monkeypatch.setattr(
        descriptors.resource, "setrlimit", lambda kind, new: limits.__setitem__(slice(2), new)
    )
    return limits


def test_the_limit_is_raised_as_far_as_it_is_needed(limits):
    assert fit_descriptors(BOUNDS) == (BOUNDS, "")
    assert limits == [WANTED, 4096]


def test_without_a_limit_all_bounds_hold(limits):
    limits[:] = [resource.RLIM_INFINITY] * 2

    assert fit_descriptors(BOUNDS) == (BOUNDS, "")


def test_where_the_limit_is_hard_strangers_get_less_and_the_log_its_part(limits):
    limits[:] = [256, 256]
    fitted, told = fit_descriptors(BOUNDS)

    used = fitted.connections_max * CONNECTION_COST + fitted.readers_max * READER_COST
    assert LEFT - CONNECTION_COST < used <= LEFT
    assert told == (
        f"256 descriptors are allowed to this process (RLIMIT_NOFILE), {WANTED} are wanted: "
        f"connections_max is {fitted.connections_max}, readers_max {fitted.readers_max}"
    )


def test_a_reader_over_a_socket_can_be_served_whatever_the_limit(limits):
    limits[:] = [KEPT + BOUNDS.greetings_max + CONNECTION_COST + READERS_MIN * READER_COST] * 2
    fitted, _ = fit_descriptors(BOUNDS)

    assert (fitted.connections_max, fitted.readers_max) == (1, READERS_MIN)


def test_a_limit_that_leaves_nothing_for_clients_is_refused(limits):
    limits[:] = [KEPT + BOUNDS.greetings_max] * 2

    with pytest.raises(ConfigurationError, match=r"160 descriptors are allowed .* raise the limit"):
        fit_descriptors(BOUNDS)
