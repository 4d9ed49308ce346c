"""What a medium provides of one cluster's log; ``LogReader`` makes everything else from it."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from cluster.errors import LogDamaged
from cluster.protocol.enums import ClusterTimeUnit
from cluster.protocol.token import LogIdentity

BLOCK_LENGTH = 4 * 1024 * 1024

OnDamage = Callable[[LogDamaged], object]


class BlockOptions(NamedTuple):
    """How blocks are read: what each of these does, ``CommittedLog.blocks`` says."""

    max_bytes: int = BLOCK_LENGTH
    is_committed: bool = False
    is_skimmed: bool = False
    on_damage: OnDamage | None = None


AS_READ, AS_COMMITTED = BlockOptions(), BlockOptions(is_committed=True)


class CommittedLog(Protocol):
    """A log as it is in files (``directory.py``), or at members elsewhere (``remote.py``).

    Ends are excluded. ``warnings`` holds, one line each, what whoever reads should know: where a log that was
    not stopped in order is proven to be committed, and that a member's counters are gone.
    """

    warnings: list[str]

    @property
    def identity(self) -> LogIdentity | None:
        """None while the log has no entry."""

    @property
    def start_position(self) -> int:
        """First position that is still there, as far as is known."""

    def await_start(self) -> int:
        """The same for one who is about to go without what lies before: all who may have it were asked."""

    @property
    def term_length(self) -> int:
        """Bytes of a term buffer: no entry crosses a multiple of it."""

    @property
    def time_unit(self) -> ClusterTimeUnit:
        """Of the log's timestamps."""

    @property
    def is_live(self) -> bool:
        """Whether the member runs, so that the log may grow."""

    @property
    def damage(self) -> Sequence[LogDamaged]:
        """What could not be read beside the log, while the rest could."""

    def term_before(self, position: int) -> str | None:
        """The leadership term of the last entry before ``position``, as tokens have it; None where the log
        does not go so far, or cannot say it.
        """

    def commit_position(self) -> int:
        """End of what is known to be committed: how far a stream may read now."""

    def end_position(self) -> int:
        """End of what a batch reads: the commit position of a live member, else all that is recorded."""

    def blocks(
        self, from_position: int | None = None, to_position: int | None = None, how: BlockOptions = AS_READ
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Runs of whole messages, each with the position it begins at; together they hold every entry whose
        first frame lies in [``from_position``, ``to_position``).

        ``from_position`` is the start of a frame (default: the start), ``to_position`` any position (default:
        ``end_position()``, which bounds it anyway unless the caller knows that the range ``is_committed``). A
        block is longer than ``max_bytes`` only for one message that is. Damage raises LogDamaged where it is
        reached, or is handed to ``on_damage`` and skipped. Raises LogPurged when ``from_position`` was
        purged, and DataLoss when a range that ``is_committed`` is not here as far as ``to_position``. Who
        only wants to know where runs begin and end has them ``is_skimmed``: padding may stand for messages.
        """

    def locate(self, damage: LogDamaged, position: int) -> LogDamaged:
        """The damage, with what holds the bytes at ``position``."""

    def close(self) -> None: ...


class LogOfOthers:
    """What is so of every log that running members send."""

    @property
    def is_live(self) -> bool:
        """Always: what answers runs."""
        return True

    @property
    def damage(self) -> Sequence[LogDamaged]:
        """None: what is beside the log is its member's."""
        return ()

    def locate(self, damage: LogDamaged, position: int) -> LogDamaged:
        return LogDamaged(None, None, f"{damage.what} (log position {position})")
