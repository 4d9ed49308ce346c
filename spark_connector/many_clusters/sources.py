"""The source's readers over several clusters: one reader for each, and what Spark hears of all of them.

Each cluster has its own log, so its own positions: rows have a first column ``clusterName``, unique with
``position``. An offset maps names to the offsets of their clusters:

    {"v": 3, "clusters": {"eu": {"v": 2, …}, "us": {"v": 2, …}}}

A checkpoint of one log goes on as that log's part. A cluster that is new begins where the options say; one
that is in the checkpoint and in no option is an error, or is left out with ``failOnDataLoss`` = ``false``.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from cluster.errors import ClusterError, ConfigurationError, DataLoss
from cluster.protocol.token import is_one_log
from spark_connector.log import lines_of, warn
from spark_connector.many_clusters.cluster_names import CLUSTER_NAME
from spark_connector.offsets import MANY_OFFSET_VERSION, Offset
from spark_connector.source.pushdown import wanted_values
from spark_connector.source.readers import ClusterBatchReader, ClusterStreamReader
from spark_connector.source.reading import LogRange

R = TypeVar("R", ClusterBatchReader, ClusterStreamReader)


@dataclass(frozen=True, slots=True)
class NamedRange(InputPartition):
    """One task's share of one cluster's log."""

    cluster_name: str
    log_range: InputPartition


@contextmanager
def _of(name: str) -> Iterator[None]:
    """Errors of one cluster that are raised inside, and lines that are logged, say of which one they are."""
    try:
        with lines_of(name):
            yield
    except ClusterError as error:
        error.args = (f"cluster {name}: {error}",)
        raise


class _ManyReader(Generic[R]):
    """A reader for each cluster. ``columns`` are those of the rows, the cluster's name among them or not."""

    def __init__(self, readers: Mapping[str, R], columns: list[str]) -> None:
        self._readers: dict[str, R] = dict(readers)
        self._columns = columns

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, NamedRange)
        name = partition.cluster_name
        batches = self._readers[name].read(partition.log_range)
        while True:
            with _of(name):
                batch = next(batches, None)
            if batch is None:
                return
            names = pa.repeat(pa.scalar(name), batch.num_rows)
            arrays = [
                names if column.lower() == CLUSTER_NAME.lower() else batch.column(column)
                for column in self._columns
            ]
            yield pa.RecordBatch.from_arrays(arrays, names=self._columns)


class ManyBatchReader(_ManyReader[ClusterBatchReader], DataSourceReader):
    """A range of each log."""

    def __init__(self, readers: Mapping[str, ClusterBatchReader], columns: list[str]) -> None:
        super().__init__(readers, columns)
        self._wanted = set(readers)

    def partitions(self) -> list[InputPartition]:
        # Spark asks for one range at least.
        planned: list[InputPartition] = []
        identities = {}
        for name in sorted(self._wanted) or sorted(self._readers)[:1]:
            with _of(name):
                first, *_ = parts = self._readers[name].partitions()
            assert isinstance(first, LogRange)
            identities[name] = first.cluster
            planned += [NamedRange(name, part) for part in parts]
        _report_twins(identities)
        return planned


class FilteringManyBatchReader(ManyBatchReader):
    """Takes the filters of the query; those of ``clusterName`` leave out logs."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        for condition in filters:
            attribute = getattr(condition, "attribute", ())
            if [part.lower() for part in attribute] == [CLUSTER_NAME.lower()]:
                self._wanted &= wanted_values(condition) or self._wanted
            else:
                for reader in self._readers.values():
                    reader.add_filter(condition)
        return filters


class ManyStreamReader(_ManyReader[ClusterStreamReader], DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The logs from their starts or the checkpoint on; a micro-batch has a part of each that has news."""

    def __init__(
        self, readers: Mapping[str, ClusterStreamReader], columns: list[str], *, fail_on_data_loss: bool
    ) -> None:
        super().__init__(readers, columns)
        self._fails = fail_on_data_loss
        self._triggers = 0
        self._last_read = dict.fromkeys(readers, -1)  # in which trigger each was read
        self._left_out: set[str] = set()  # clusters of the checkpoint of which that was logged

    @property
    def _first(self) -> ClusterStreamReader:
        return next(iter(self._readers.values()))

    def prepareForTriggerAvailableNow(self) -> None:
        for name, reader in self._readers.items():
            with _of(name):
                reader.prepareForTriggerAvailableNow()

    def initialOffset(self) -> dict[str, Any]:
        return _offset({name: self._initial(name) for name in self._readers})

    def _initial(self, name: str) -> dict[str, Any]:
        with _of(name):
            return self._readers[name].initialOffset()

    def getDefaultReadLimit(self) -> ReadLimit:
        """That of all clusters: they have the same."""
        return self._first.getDefaultReadLimit()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next micro-batch; ``start`` untouched when there is nothing to read."""
        starts = self._offsets(start)
        begins = {name: starts.get(name) or self._initial(name) for name in self._readers}
        tips = {}
        for name, reader in self._readers.items():
            with _of(name):
                tips[name] = reader.look(begins[name])
        if not self._triggers:
            _report_twins({name: self._identity(name) for name in self._readers})
        ends = begins | self._shared_out(begins, tips, limit)
        return start if ends == starts else _offset(ends)

    def _shared_out(
        self, begins: dict[str, dict[str, Any]], tips: dict[str, int], limit: ReadLimit
    ) -> dict[str, dict[str, Any]]:
        """The ends of those that have news, each with an equal part of what one micro-batch may hold.

        What a log does not need of its part is for those after it; the ones with the least news come first.
        Where there are more than may be read at once, those come first that have waited longest.
        """
        news = {name: tip - Offset.from_json(begins[name]).position for name, tip in tips.items()}
        in_turn = sorted(
            (name for name in news if news[name] > 0), key=lambda name: (self._last_read[name], news[name])
        )
        room = self._first.room(limit)
        ends = {}
        for left, name in zip(range(len(in_turn), 0, -1), in_turn):
            if room.is_taken:
                break
            with _of(name):
                ends[name] = self._readers[name].advance(begins[name], tips[name], room, among=left)
            if ends[name] != begins[name]:
                self._last_read[name] = self._triggers
        self._triggers += 1
        return ends

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """For the query's progress: the lag of each log, and of all of them."""
        lags = {}
        for name, reader in self._readers.items():
            with _of(name):
                if lag := reader.reportLatestOffset():
                    lags[name] = lag
        if not lags:
            return None
        entries = [lag["entriesBehindLatest"] for lag in lags.values()]
        return {
            "clusters": lags,
            "bytesBehindLatest": sum(lag["bytesBehindLatest"] for lag in lags.values()),
            "entriesBehindLatest": None if None in entries else sum(entries),
            "msBehindLatest": max(lag["msBehindLatest"] for lag in lags.values()),
        }

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of a micro-batch: those of its parts."""
        starts = self._offsets(start)
        planned: list[InputPartition] = []
        for name, until in self._offsets(end).items():
            # One that is new says itself where it began.
            begin = starts.get(name) or Offset(until["cluster"], until["position"]).to_json()
            with _of(name):
                parts = self._readers[name].partitions(begin, until)
            planned += [NamedRange(name, part) for part in parts]
        return planned

    def commit(self, end: dict[str, Any]) -> None:
        """Report for the consumer groups of those that have one."""
        for name, until in self._offsets(end).items():
            with _of(name):
                self._readers[name].commit(until)

    def stop(self) -> None:
        """The query ends."""
        for reader in self._readers.values():
            reader.stop()

    def _offsets(self, given: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Each cluster's own part of an offset. Raises ConfigurationError, DataLoss."""
        if given.get("v") != MANY_OFFSET_VERSION:
            return {self._name_of(Offset.from_json(given)): given}
        parts = given.get("clusters")
        if not isinstance(parts, dict) or not all(isinstance(part, dict) for part in parts.values()):
            raise ConfigurationError(f"the checkpoint's offset {given!r} is damaged")
        for name in sorted(parts.keys() - self._readers.keys() - self._left_out):
            lost = f"the checkpoint has cluster {name}, at position {parts[name].get('position')}"
            known = parts[name].get("cluster") or "?"
            same = [] if "?" in known else [new for new in self._readers if self._identity(new) == known]
            now = "".join(f"; cluster {new} is that log under another name" for new in same)
            expected = f"expected endpoints.{name} or clusterDir.{name} among the options"
            if self._fails:
                raise DataLoss(
                    f"{lost}{now}; {expected}, or failOnDataLoss = false to leave it out from now on"
                )
            warn(f"{lost}, and no option names it: it is left out{now}")
            self._left_out.add(name)
        return {name: part for name, part in parts.items() if name in self._readers}

    def _name_of(self, offset: Offset) -> str:
        """Whose log it is that a checkpoint of one log is of."""
        known = offset.cluster or ""
        identities = {name: self._identity(name) for name in self._readers} if known else {}
        same = [name for name, identity in identities.items() if identity == known]
        alike = [name for name, identity in identities.items() if identity and is_one_log(known, identity)]
        if len(same or alike) == 1:
            return (same or alike)[0]
        if alike:
            raise DataLoss(
                f"the checkpoint is of the log {known} (position {offset.position}) alone, and each of "
                f"{', '.join(same or alike)} may be it; read them by a new checkpoint"
            )
        raise DataLoss(
            f"the checkpoint is of the log {offset.cluster} (position {offset.position}) alone, and none "
            f"of {', '.join(self._readers)} is it; give its cluster a name, or use a new checkpoint"
        )

    def _identity(self, name: str) -> str | None:
        """Which log it is; with ``?`` for what a log does not show whose head is purged."""
        with _of(name):
            return self._readers[name].cluster


def _report_twins(identities: Mapping[str, str | None]) -> None:
    """Say which names are of one log, by ``identities``; of purged heads that is not known."""
    names: dict[str, str] = {}
    for name, identity in identities.items():
        if identity is not None and "?" not in identity and names.setdefault(identity, name) != name:
            warn(f"clusters {names[identity]} and {name} are one log, {identity}: its entries come for each")


def _offset(parts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {"v": MANY_OFFSET_VERSION, "clusters": parts}
