"""A session, and a task of Spark, that a test plays: for the writers without members and without Spark."""

from __future__ import annotations

import pyarrow as pa


class PlayedClient:
    """A session that takes ``room`` rows before it has to be polled, and commits them then."""

    def __init__(self, room=1 << 30):
        self.room = room
        self.log = []
        self.offered = self.acknowledged = 0
        self.max_payload_length = 1000
        self.committed_position = -1
        self.cluster_session_id = 7
        self.is_closed = False
        self.why_closed = ""
        self.is_stuck = False
        self.polls = 0
        self.was_closed = False
        self.lane_standing = None
        self.on_poll = lambda: None

    def offer_batch(self, payloads):
        if self.is_closed:
            return -4
        if self.offered - self.acknowledged + len(payloads) > self.room:
            return -2
        self.log += payloads.cast(pa.binary()).to_pylist()
        self.offered += len(payloads)
        return 1

    def poll_egress(self):
        self.polls += 1
        self.on_poll()
        if not self.is_stuck:
            self.acknowledged = self.offered
            self.committed_position = 96 * self.offered

    def wait(self, timeout_s):
        pass

    def close(self):
        self.was_closed = True


class PlayedTask:
    """What Spark tells a task of itself."""

    def __init__(self, partition=3, attempt=1, **properties):
        self.partition, self.attempt = partition, attempt
        self.properties = properties

    def partitionId(self):
        return self.partition

    def attemptNumber(self):
        return self.attempt

    def getLocalProperty(self, key):
        return self.properties.get(key)
