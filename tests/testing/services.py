"""Services of the tests: one that is sound, and some that are not, each in its own way."""

from __future__ import annotations

import random
import time
from datetime import datetime
from pathlib import Path
from typing import ClassVar
from uuid import UUID, uuid4

from cluster import ClusteredService


class Counter(ClusteredService):
    """Counts messages, and by a thousand timers, of which each message sets one in five seconds."""

    def on_start(self, cluster, snapshot_image):
        self.cluster = cluster
        self.count = 0 if snapshot_image is None else int(next(iter(snapshot_image)))

    def on_session_message(self, session, timestamp, buffer):
        self.count += 1
        self.cluster.schedule_timer(self.count, timestamp + 5_000)
        session.offer(b"%d" % self.count)

    def on_timer_event(self, correlation_id, timestamp):
        self.count += 1_000

    def on_take_snapshot(self, snapshot_publication):
        snapshot_publication.offer(b"%d" % self.count)


class ForgetsItsState(Counter):
    def on_take_snapshot(self, snapshot_publication):
        snapshot_publication.offer(b"0")


class GoesByChance(Counter):
    def on_session_message(self, session, timestamp, buffer):
        self.count += random.randrange(2)


class GoesByTheClock(Counter):
    def on_session_message(self, session, timestamp, buffer):
        self.count = time.perf_counter_ns()


class GoesByADate(Counter):
    """Of a clock that its module has imported by name."""

    def on_session_message(self, session, timestamp, buffer):
        self.count = datetime.now().microsecond


class GoesByIdentifiers(Counter):
    def on_session_message(self, session, timestamp, buffer):
        self.count += uuid4().int + random.Random().randrange(1 << 60)


class GoesByObjects(Counter):
    """By the order of a set of them."""

    def on_session_message(self, session, timestamp, buffer):
        objects = [type("", (), {"number": number})() for number in range(50)]
        self.count += int("".join(f"{each.number:02}" for each in set(objects)))


class GoesByAFile(Counter):
    """Of the kernel's, another each time that it is read."""

    def on_session_message(self, session, timestamp, buffer):
        self.count += UUID(Path("/proc/sys/kernel/random/uuid").read_text().strip()).int


class GoesByHash(Counter):
    """The same in one process, where all members of a simulated cluster are."""

    def on_session_message(self, session, timestamp, buffer):
        self.count += hash(str(timestamp)) % 7
        session.offer(b"%d" % self.count)


class GoesByItsMember(Counter):
    def on_session_message(self, session, timestamp, buffer):
        self.count += self.cluster.member_id()


class KeepsBuffers(Counter):
    """What it was given, and not a copy of it."""

    def on_start(self, cluster, snapshot_image):
        super().on_start(cluster, None)
        self.kept = list(snapshot_image or ())

    def on_session_message(self, session, timestamp, buffer):
        self.kept = [*self.kept[-3:], buffer]
        session.offer(b"kept")

    def on_take_snapshot(self, snapshot_publication):
        for buffer in self.kept:
            snapshot_publication.offer(bytes(buffer))


class GoesByItsBatches(Counter):
    def on_session_messages(self, batch):
        self.count += len(batch.session_ids) ** 2


class SetsTimersByMemory(Counter):
    """Their numbers begin again with each instance."""

    def on_start(self, cluster, snapshot_image):
        super().on_start(cluster, snapshot_image)
        self.timers = 0

    def on_session_message(self, session, timestamp, buffer):
        self.timers += 1
        self.cluster.schedule_timer(self.timers, timestamp + 5_000)


class SharesBetweenMembers(Counter):
    seen: ClassVar[list[int]] = []

    def on_session_message(self, session, timestamp, buffer):
        self.seen.append(1)
        session.offer(b"%d" % len(self.seen))


class Raises(Counter):
    def on_session_message(self, session, timestamp, buffer):
        raise KeyError(bytes(buffer))
