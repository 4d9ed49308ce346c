"""The clusters that clients are tested on."""

import pytest

from tests.client.leader import Leader
from tests.client.scripted import FakeCluster


@pytest.fixture
def cluster():
    """Scripted, on a clock of its own."""
    return FakeCluster()


@pytest.fixture
def leader(tmp_path):
    """A member's ports without a member, over real sockets."""
    leader = Leader(str(tmp_path))
    yield leader
    leader.stop()
