"""Backups in processes of their own: how they are configured, and waited for."""

from __future__ import annotations

from cluster.counters import CountersReader
from cluster.protocol.counter_types import CounterTypeId
from tests.node.processes import await_that

QUICK = 'interval = "2s"\nresponse_timeout = "2s"\ncool_down_interval = "500ms"\n'


def await_copy(directory, position):
    """Until the running backup has the log up to there."""

    def is_level():
        with CountersReader(f"{directory}/driver/cnc.dat") as counters:
            return counters.find(CounterTypeId.BACKUP_LIVE_LOG_POSITION).get() >= position

    await_that(is_level, f"the copy has the log up to {position}")
