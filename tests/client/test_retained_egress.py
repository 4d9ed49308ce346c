"""What came for the application and is not dispatched yet: how much there may be, and what is dropped."""

from __future__ import annotations

import numpy as np
import pytest

from cluster.client import retained_egress
from cluster.client.egress_dispatch import ControlledAction, EgressBatch, ExtensionMessage, as_dispatch
from cluster.client.retained_egress import RetainedEgress
from cluster.errors import ClusterError


@pytest.fixture(autouse=True)
def _a_small_bound(monkeypatch):
    monkeypatch.setattr(retained_egress, "RETAINED_BYTES_MAX", 100)


def batch_of(rows: int, length: int = 10) -> EgressBatch:
    offsets = np.arange(rows) * length
    return EgressBatch(1, np.zeros(rows), offsets, np.full(rows, length), np.zeros(rows * length, np.uint8))


def test_messages_that_a_listener_puts_back_still_count():
    held = RetainedEgress(is_for_listener=True)
    held.hold(batch_of(10))
    refusing = as_dispatch(lambda *message: ControlledAction.ABORT)
    for _ in range(3):
        assert held.deliver(refusing, 10) == 0
        assert held.is_full
    assert held.deliver(as_dispatch(lambda *message: None), 10) == 10
    assert not held.is_full


def test_answers_that_were_taken_are_not_among_the_dropped():
    held = RetainedEgress(is_for_listener=False)
    held.hold(batch_of(8))
    for _ in range(3):
        assert held.answers.take_one() is not None
    held.hold(batch_of(8))
    with pytest.raises(ClusterError, match=r"^5 answers were dropped"):
        held.answers.take_one()


def test_messages_of_other_schemas_count_as_well_until_they_are_taken():
    held = RetainedEgress(is_for_listener=True)
    for _ in range(10):
        assert not held.is_full
        held.hold(ExtensionMessage(9, 1, memoryview(bytes(10))))
    assert held.is_full
    held.take(1)
    assert not held.is_full
