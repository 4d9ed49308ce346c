"""Whole messages out of an image, joined from their frames (Aeron: FragmentAssembler)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cluster.errors import MediaDriverError
from cluster.log.deliver import read_message
from cluster.media.image import Image
from cluster.protocol.frame import MESSAGE_LENGTH_MAX, MTU_MAX

LENGTH_MAX = 4 * MESSAGE_LENGTH_MAX  # with the headers of its frames


class MessageReader:
    """Of one image, from where it begins."""

    def __init__(self, image: Image) -> None:
        self.image = image
        self._bytes = np.zeros(2 * MTU_MAX, np.uint8)
        self._end = 0

    def poll(self) -> list[bytes]:
        """The messages that are whole by now. Raises MediaDriverError for what is no frame."""
        messages: list[bytes] = []
        while (more := self.poll_some()) is not None:
            messages += more
        return messages

    def poll_some(self) -> list[bytes] | None:
        """As ``poll``, of the next frames, as many as there is room for; None where nothing has arrived."""
        if self._bytes.size - self._end < MTU_MAX:
            self._grow()
        length = self.image.poll(self._bytes, self._end)
        if length == 0:
            return None
        self._end += length
        return list(self._whole())

    def _whole(self) -> Iterator[bytes]:
        at = 0
        while at < self._end:
            message, after = read_message(self._bytes, at, self._end)
            if after == at:
                break
            if message is not None:
                yield message
            at = after
        self._bytes[: self._end - at] = self._bytes[at : self._end].copy()
        self._end -= at

    def _grow(self) -> None:
        if self._bytes.size >= LENGTH_MAX:
            raise MediaDriverError(f"a message of session {self.image.session_id} does not end")
        self._bytes = np.concatenate((self._bytes, np.zeros(self._bytes.size, np.uint8)))
