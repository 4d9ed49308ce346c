"""Column ``decoded`` beside the columns of the log, and what becomes of payloads that do not decode."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cluster.errors import ConfigurationError
from spark_connector.decoding.decoded import DECODED
from spark_connector.decoding.decoders import FAILFAST, Decode
from spark_connector.log import warn
from spark_connector.schema import row_columns

_NEEDED = ("payload", "position")


@dataclass(frozen=True, slots=True)
class DecodedColumn:
    """How one read makes the column; travels to its tasks."""

    format: str
    mode: str
    decode: Decode


class RowMaker:
    """Makes the rows of one task out of batches of the log's columns ``needed``."""

    def __init__(self, columns: tuple[str, ...], decoded: DecodedColumn | None) -> None:
        """``columns`` are the rows', in the user's spelling."""
        self._columns = columns
        self._decoded = decoded if DECODED in row_columns(columns) else None
        self._messages = self._failed = 0
        self._first = ""  # position of the first payload that did not decode, and why
        names = [name for name in row_columns(columns) if name != DECODED]
        if self._decoded is not None:
            names += [name for name in _NEEDED if name not in names]
        self.needed = tuple(names)

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Raises ConfigurationError with FAILFAST for a payload that does not decode."""
        if self._decoded is None:
            return batch.rename_columns(self._columns)
        made = {DECODED: self._column(batch, self._decoded)}
        arrays = [made[name] if name in made else batch.column(name) for name in row_columns(self._columns)]
        return pa.RecordBatch.from_arrays(arrays, names=list(self._columns))

    def report(self) -> None:
        """Warn of what did not decode."""
        if self._failed and self._decoded is not None:
            warn(
                f"{self._failed} of {self._messages} payloads did not decode as {self._decoded.format}, "
                f"the first at {self._first}"
            )

    def _column(self, batch: pa.RecordBatch, decoded: DecodedColumn) -> pa.Array:
        payloads = batch.column("payload")
        is_message = payloads.is_valid().to_numpy(zero_copy_only=False)
        column, failures = decoded.decode(payloads.drop_null())
        if failures:
            index = min(failures)
            position = batch.column("position")[int(np.flatnonzero(is_message)[index])]
            first = f"position {position}: {failures[index]}"
            if decoded.mode == FAILFAST:
                raise ConfigurationError(f"a payload does not decode as {decoded.format}, at {first}")
            self._first = self._first or first
        self._messages += len(column)
        self._failed += len(failures)
        if len(column) == len(payloads):
            return column
        return column.take(pa.array(np.cumsum(is_message) - 1, pa.int64(), mask=~is_message))
