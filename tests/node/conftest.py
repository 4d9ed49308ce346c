"""What the tests of whole members share."""

from contextlib import ExitStack

import pytest


@pytest.fixture
def opened():
    """Closes what was opened, last first."""
    with ExitStack() as stack:
        yield stack
