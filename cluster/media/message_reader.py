"""Whole messages out of an image, joined from their frames (Aeron: FragmentAssembler)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cluster.errors import MediaDriverError
from cluster.log.deliver import read_message
from cluster.log.scan import last_message_end
from cluster.media.image import Image
from cluster.protocol.frame import MESSAGE_LENGTH_MAX, MTU_MAX

LENGTH_MAX = 4 * MESSAGE_LENGTH_MAX  # with the headers of its frames


class MessageReader:
    """Of one image, from where it begins."""

    def __init__(self, image: Image) -> None:
        self.image = image
        self._bytes = np.zeros(2 * MTU_MAX, np.uint8)
        self._taken = self._end = 0

    def poll(self) -> list[bytes]:
        """The messages that are whole by now. Raises MediaDriverError for what is no frame."""
        messages: list[bytes] = []
        while (more := self.poll_some()) is not None:
            messages += more
        return messages

    def poll_some(self) -> list[bytes] | None:
        """As ``poll``, of the next frames, as many as there is room for; None where nothing has arrived."""
        run = self.poll_run()
        return None if run is None else list(messages_of(run))

    def poll_run(self) -> np.ndarray | None:
        """The frames of those messages, which hold until the next call."""
        kept = self._end - self._taken
        self._bytes[:kept] = self._bytes[self._taken : self._end].copy()
        self._taken, self._end = 0, kept
        while self._bytes.size - kept < max(MTU_MAX, self.image.needed):
            self._grow()
        length = self.image.poll(self._bytes, kept)
        if length == 0:
            return self._bytes[:0] if self.image.needed else None
        self._end += length
        self._taken = last_message_end(self._bytes, 0, self._end)
        return self._bytes[: self._taken]

    def _grow(self) -> None:
        if self._bytes.size >= LENGTH_MAX:
            raise MediaDriverError(f"a message of session {self.image.session_id} does not end")
        self._bytes = np.concatenate((self._bytes, np.zeros(self._bytes.size, np.uint8)))


def messages_of(run: np.ndarray) -> Iterator[bytes]:
    """Each message of a run of whole ones; padding and fragments of nothing are skipped."""
    at = 0
    while at < run.size:
        message, at = read_message(run, at, run.size)
        if message is not None:
            yield message
