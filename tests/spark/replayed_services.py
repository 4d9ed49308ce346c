"""Services of which some are not deterministic, to be replayed."""

from __future__ import annotations

from cluster import ClusteredService


class Counter(ClusteredService):
    """Counts messages, and saves how many."""

    def on_start(self, cluster, snapshot_image):
        self.cluster = cluster
        self.count = sum(int(record) for record in snapshot_image or ())

    def on_session_message(self, session, timestamp, buffer):
        self.count += 1

    def on_take_snapshot(self, snapshot_publication):
        snapshot_publication.offer(b"%d" % self.count)


class Biased(Counter):
    """Member 2 counts what says so twice; its cluster does not look."""

    compares_snapshots = False

    def on_session_message(self, session, timestamp, buffer):
        is_biased = bytes(buffer) == b"biased" and self.cluster.context().member_id == 2
        self.count += 2 if is_biased else 1


class Batched(Counter):
    """Counts by batches, and answers them."""

    def on_session_messages(self, batch):
        self.count += len(batch)
        self.cluster.offer_batch(batch.session_ids, batch.offsets, batch.lengths, batch.buffer)


class Reminded(Batched):
    """Has a timer that does not come to be due."""

    def on_session_messages(self, batch):
        super().on_session_messages(batch)
        self.cluster.schedule_timer(7, 1 << 45)


class Twice(Reminded):
    """Counts every message twice."""

    def on_session_messages(self, batch):
        super().on_session_messages(batch)
        self.count += len(batch)


class Busy(Counter):
    """Does what a message says."""

    def on_session_message(self, session, timestamp, buffer):
        super().on_session_message(session, timestamp, buffer)
        match bytes(buffer).split():
            case [b"tell", text] if session is not None:
                self.cluster.offer(b"said ", text)
            case [b"wait", after]:
                self.cluster.schedule_timer(7, timestamp + int(after))
            case [b"forget"]:
                self.cluster.cancel_timer(7)
            case [b"leave"]:
                session.close()
            case [b"fail"]:
                raise ValueError("as it was told")

    def on_timer_event(self, correlation_id, timestamp):
        for session in self.cluster.client_sessions():
            session.offer(b"timer %d" % correlation_id)


class Startless(Counter):
    """Cannot start."""

    def on_start(self, cluster, snapshot_image):
        raise RuntimeError("no")
