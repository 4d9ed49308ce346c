"""A member's log as it is served to readers elsewhere: its files, and how the member stands."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from cluster.archive.files import OsFiles
from cluster.counters import CountersReader
from cluster.errors import ClusterError, NotAClusterDirectory
from cluster.protocol import link
from cluster.protocol.consumer import positions_text
from cluster.protocol.counter_types import CounterTypeId, consumer_group_of, members_of
from cluster.reader.directory import DirectoryLog
from cluster.reader.member_directory import MemberDirectory, counters_paths
from cluster.reader.served_recordings import ServedRecordings
from cluster.reader.standing import (
    LINK_COUNTERS,
    by_counters,
    by_disk,
    by_label,
    by_links,
    by_log,
    standing_text,
)
from cluster.transport.clock import epoch_ms

NONE = -1


class ServedMember(DirectoryLog):
    """The log in a member's directory. Cheap enough to be made for each stream."""

    def __init__(
        self,
        *,
        cluster_dir: str,
        archive_dir: str,
        aeron_dir: str,
        cluster_id: int,
        member_id: int,
        ingress_endpoints: str = "",
        tcp_endpoints: str = "",
        ipc_endpoints: str = "",
    ) -> None:
        """Raises the errors of ``DirectoryLog``; of a member that waits for others, it says that."""
        self._cluster_id = cluster_id
        self._member_id = member_id
        self._endpoints = (ingress_endpoints, tcp_endpoints, ipc_endpoints)
        self._aeron_dir = aeron_dir
        self._directory = MemberDirectory(cluster_dir, archive_dir)
        try:
            super().__init__(None, cluster_dir=cluster_dir, archive_dir=archive_dir, aeron_dir=aeron_dir)
        except NotAClusterDirectory as error:
            if waits_for := members_of(self._counters()[0].get(CounterTypeId.AWAITED_MEMBERS, 0)):
                names = ", ".join(map(str, waits_for))
                raise NotAClusterDirectory(f"{error}; waits for members {names}") from None
            raise
        self._recordings = ServedRecordings(self)

    def recording_status(self, request: link.RecordingRequest) -> link.RecordingStatus:
        return self._recordings.status(request)

    def recording_blocks(self, recording_id: int, *, max_bytes: int) -> Iterator[tuple[int, np.ndarray]]:
        return self._recordings.blocks(recording_id, max_bytes=max_bytes)

    def status(self, correlation_id: int) -> link.LogStatus:
        """Identity, geometry and positions of the log, role and states of the member."""
        commit_position = self.commit_position()  # first: it looks at the files again
        identity, recording = self.identity, self.recording
        values, consumers, standing = self._counters()
        ingress, tcp, ipc = self._endpoints
        end = max(commit_position, values.get(CounterTypeId.RECORDING_POSITION, NONE))
        standing |= by_log(self, end, epoch_ms()) | by_disk(self._directory.archive)
        return link.LogStatus(
            correlation_id=correlation_id,
            start_position=self.start_position,
            commit_position=commit_position,
            append_position=values.get(CounterTypeId.RECORDING_POSITION, NONE),
            leadership_term_id=values.get(CounterTypeId.LEADERSHIP_TERM_ID, NONE),
            first_term_timestamp=identity.first_term_timestamp if identity else None,
            first_log_session_id=identity.log_session_id if identity else None,
            cluster_id=self._cluster_id,
            member_id=self._member_id,
            # Not by the log, whose last term may be purged.
            leader_member_id=values.get(CounterTypeId.LEADER_MEMBER_ID, NONE),
            role=values.get(CounterTypeId.NODE_ROLE, NONE),
            election_state=values.get(CounterTypeId.ELECTION_STATE, NONE),
            module_state=values.get(CounterTypeId.CONSENSUS_MODULE_STATE, NONE),
            session_count=values.get(CounterTypeId.CLIENT_SESSION, 0),
            term_length=self.term_length,
            mtu=recording.mtu_length,
            initial_term_id=recording.initial_term_id,
            time_unit=self.time_unit,
            awaited_members=values.get(CounterTypeId.AWAITED_MEMBERS, 0),
            certificate_end_ms=values.get(CounterTypeId.CERTIFICATE_END, 0),
            ingress_endpoints=ingress,
            tcp_endpoints=tcp,
            ipc_endpoints=ipc,
            consumers=positions_text(consumers),
            standing=standing_text(standing),
        )

    def _counters(self) -> tuple[dict[int, int], dict[str, int], dict[str, Any]]:
        """Values of the live counters by type, of CLIENT_SESSION how many there are; groups; the standing."""
        for path in counters_paths(OsFiles(), self._directory, None, self._aeron_dir):
            try:
                with CountersReader(path) as counters:
                    if not counters.is_live(epoch_ms()):
                        continue
                    types, values = counters.types_and_values()
                    consumers = counters.labels_and_values(CounterTypeId.CONSUMER_POSITION)
                    uptime_ms = epoch_ms() - counters.header.start_timestamp
                    named = counters.labels_and_values(CounterTypeId.CONSENSUS_MODULE_ERRORS)
                    found = map(counters.labels_and_values, LINK_COUNTERS)
                    links = by_links(*found, uptime_ms=uptime_ms)
            except ClusterError:
                continue
            by_type = dict(zip(types, values, strict=True))
            by_type[CounterTypeId.CLIENT_SESSION] = types.count(CounterTypeId.CLIENT_SESSION)
            groups = {consumer_group_of(label): value for label, value in consumers.items()}
            standing = by_counters(types, values, epoch_ms()) | by_label(next(iter(named), "")) | links
            return by_type, groups, standing | {"uptimeMs": uptime_ms}
        return {}, {}, {}
