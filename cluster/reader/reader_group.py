"""The consumer group of one reader: where it is, and what is reported of it."""

from contextlib import closing
from typing import Any

from cluster.errors import ClusterError, ConfigurationError
from cluster.protocol.frame import FRAME_ALIGNMENT
from cluster.reader.consumers import REPORTS, reported_groups
from cluster.reader.group_reports import GroupReports
from cluster.reader.remote import RemoteLog


class ReaderGroup:
    """What ``LogReader`` knows of its group."""

    def __init__(self, name: str, endpoints: str, options: dict[str, Any]) -> None:
        """``options`` are those of ``RemoteLog``. Raises ConfigurationError for no name of a group."""
        self.name = name
        self.warnings: list[str] = []
        self._endpoints = endpoints
        self._options = options
        given = {key: options.get(key) for key in ("tls", "credentials")}
        settings = {key: value for key, value in given.items() if value is not None}
        self._reports = GroupReports(name, endpoints, self.warnings.append, **settings)
        self._position: int | None = None

    @property
    def position(self) -> int | None:
        """What was ``processed`` last, else what the cluster has, or None. Raises ClusterError."""
        if self._position is None:
            with closing(RemoteLog(self._endpoints, entry_filter=REPORTS, **self._options)) as log:
                found = reported_groups(log).get(self.name)
            if found is not None:
                self._position = found.position
                self._reports.found(found.position)
        return self._position

    def processed(self, position: int) -> None:
        """Raises ConfigurationError for what cannot be the end of an entry."""
        if position < 0 or position % FRAME_ALIGNMENT:
            what = f"processed: position is {position}, expected the endPosition of an entry"
            raise ConfigurationError(what)
        self._position = position
        self._reports.reached(position)

    def report(self) -> None:
        """Raises ClusterError."""
        self._reports.report()

    def close(self) -> ClusterError | None:
        """Make the last report; why there is none."""
        return self._reports.close()
