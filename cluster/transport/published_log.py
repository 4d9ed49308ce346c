"""What links are given of the log that a member leads, where they send it without being asked."""

from typing import Protocol

import numpy as np


class PublishedLog(Protocol):
    """The recording of a member that leads, as it is sent to others."""

    @property
    def append_position(self) -> int: ...

    @property
    def start_position(self) -> int: ...

    @property
    def session_id(self) -> int: ...

    @property
    def initial_term_id(self) -> int: ...

    @property
    def term_length(self) -> int: ...

    @property
    def mtu(self) -> int: ...

    def is_boundary(self, position: int) -> bool: ...

    def read_published(self, position: int, max_length: int, out: np.ndarray | None = None) -> np.ndarray: ...
