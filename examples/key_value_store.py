"""A replicated dictionary.

    set KEY VALUE   ->  ok            get KEY   ->  the value, or nothing
    delete KEY      ->  ok            keys      ->  the keys in order, a line each

Run it: ``cluster up --service examples.key_value_store:KeyValueStore``
"""

from __future__ import annotations

from collections.abc import Iterable

from cluster import ClientSession, Cluster, ClusteredService, ExclusivePublication


class KeyValueStore(ClusteredService):
    """State: one dictionary. A request that makes no sense is answered, not raised."""

    def on_start(self, cluster: Cluster, snapshot_image: Iterable[bytes] | None) -> None:
        self._values: dict[bytes, bytes] = {}
        for record in snapshot_image or ():
            key, _, value = record.partition(b"=")
            self._values[key] = value

    def on_session_message(self, session: ClientSession | None, timestamp: int, buffer: memoryview) -> None:
        assert session is not None  # no service sends to this one
        session.offer(self._answer(bytes(buffer).split(b" ", 2)))

    def _answer(self, words: list[bytes]) -> bytes:
        match words:
            case [b"set", key, value] if b"=" not in key:
                self._values[key] = value
                return b"ok"
            case [b"get", key]:
                return self._values.get(key) or b"nothing"
            case [b"delete", key]:
                self._values.pop(key, None)
                return b"ok"
            case [b"keys"]:
                return b"\n".join(sorted(self._values)) or b"nothing"
            case _:
                return b"error: expected set KEY VALUE, get KEY, delete KEY or keys; a key has no ="

    def on_take_snapshot(self, snapshot_publication: ExclusivePublication) -> None:
        for key in sorted(self._values):  # the same state gives the same bytes
            snapshot_publication.offer(key, b"=", self._values[key])
