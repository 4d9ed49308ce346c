"""A service that both releases run: it counts, sets timers, and answers with all that it knows."""

from __future__ import annotations

from typing import Any

from cluster import ClusteredService


class Ledger(ClusteredService):
    """``later ID`` sets a timer due in a tenth of a second, ``never ID`` one in a day; others are kept."""

    def on_start(self, cluster: Any, snapshot_image: Any) -> None:
        self._cluster = cluster
        self._kept: list[bytes] = []
        self._fired: list[int] = []
        for record in snapshot_image or ():
            kind, _, value = record.partition(b":")
            if kind == b"kept":
                self._kept.append(bytes(value))
            else:
                self._fired.append(int(value))

    def on_session_message(self, session: Any, timestamp: int, buffer: memoryview) -> None:
        text = bytes(buffer)
        match text.split():
            case [b"later", number]:
                self._cluster.schedule_timer(int(number), timestamp + 100)
            case [b"never", number]:
                self._cluster.schedule_timer(int(number), timestamp + 86_400_000)
            case [b"tell"]:
                pass
            case _:
                self._kept.append(text)
        session.offer(
            b"%d kept, last %s, fired %a"
            % (len(self._kept), self._kept[-1] if self._kept else b"none", sorted(self._fired))
        )

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        self._fired.append(correlation_id)

    def on_take_snapshot(self, snapshot_publication: Any) -> None:
        for text in self._kept:
            snapshot_publication.offer(b"kept:" + text)
        for number in self._fired:
            snapshot_publication.offer(b"fired:%d" % number)
