"""Reads a log whose head is purged as one with its exported files (``exported_log.py``).

    |── exported ──|── exported ──|── exported ──|
                                    |────────── what the cluster still has ──────────▶
    start_position                  where the log begins now: the joint

What the cluster has is read from it, and only what lies before that from files, wherever the joint is then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cluster.errors import ConfigurationError, LogPurged
from cluster.protocol.token import identity_text
from cluster.reader.arguments import Selection
from cluster.reader.exported_log import ExportedLog
from cluster.reader.log_reader import LogReader
from cluster.transport.committed_log import BlockOptions, OnDamage

if TYPE_CHECKING:
    import pyarrow as pa


class JoinedReader(LogReader):
    """A ``LogReader`` whose entries begin with the files. They hold no frames: blocks begin at the joint."""

    def __init__(self, reader: LogReader, export_dir: str) -> None:
        """Reads on as ``reader``, closed with it. Raises ConfigurationError, DataLoss."""
        super().__init__(reader.log, reader.entry_filter)
        self.exported = ExportedLog(export_dir)
        if not self.exported.files:
            raise ConfigurationError(
                f"{self.exported.where} has no file of a log; expected some of cluster log export --append"
            )
        self._is_checked = False
        self._check_cluster()

    @property
    def start_position(self) -> int:
        return min(self.log.start_position, self.exported.start_position)

    def earliest_position(self) -> int:
        return min(self.log.await_start(), self.exported.start_position)

    def retained_from(self, position: int) -> int:
        begin = self._begin_from(position, self.log.start_position)
        return begin if begin == position else self._begin_from(position, self.log.await_start())

    def _begin_from(self, position: int, joint: int) -> int:
        """From where on nothing is missing, at ``position`` or after it."""
        if position >= joint or self._has_head(position, joint):
            return position
        oldest = self.exported.start_position
        return oldest if position < oldest < joint and self._has_head(oldest, joint) else joint

    def boundary_at_or_after(
        self,
        position: int,
        *,
        known: int | None = None,
        is_committed: bool = False,
        on_damage: OnDamage | None = None,
    ) -> int:
        joint = self.log.start_position
        if position >= joint:
            try:
                known = joint if known is None else max(known, joint)
                return super().boundary_at_or_after(
                    position, known=known, is_committed=is_committed, on_damage=on_damage
                )
            except LogPurged as error:  # meanwhile
                joint = error.start_position
                if position >= joint:
                    raise
        self._check_head(position, position + 1)
        return self.exported.boundary_at_or_after(position)

    def _runs(
        self, begin: int, to_position: int | None, selection: Selection, how: BlockOptions
    ) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
        joint = self.log.start_position
        while True:
            if begin < joint:
                until = joint if to_position is None else min(joint, to_position)
                self._check_head(begin, until)
                yield until, self.exported.batches(begin, until, selection, self.entry_filter)
                begin = until
            if to_position is not None and begin >= to_position:
                return
            try:
                for end, decoded in super()._runs(begin, to_position, selection, how):
                    yield end, decoded
                    begin = end
                return
            except LogPurged as error:  # meanwhile
                joint = error.start_position
                if begin >= joint:
                    raise

    def _check_cluster(self) -> None:
        """Raise ConfigurationError for files of another log, once it is known which this one is."""
        if not self._is_checked and (identity := self.identity) is not None:
            self.exported.check_log(self, identity_text(*identity))
            self._is_checked = True

    def _has_head(self, begin: int, end: int) -> bool:
        """Whether ``[begin, end)`` is in files; new ones are looked for where it is not."""
        self._check_cluster()
        if not self.exported.holds(begin, end):
            self.exported.look()
        return self.exported.holds(begin, end)

    def _check_head(self, begin: int, end: int) -> None:
        if not self._has_head(begin, end):
            exported, joint = self.exported, self.log.start_position
            raise LogPurged(
                f"position {begin} was purged, the log begins at {joint} now, and {exported.where} has it "
                f"only {exported.extent}",
                joint,
            )
