"""Which cluster a member's directory is of, and whether that is the one that it was started as a member of.

    identity.dat, of these members     they must be the configured ones, in whichever order and place
    none, and a say                    new, older, or a real Aeron's: takes the configured list
    none, and no promises              takes what enough others agree on (cluster/consensus/promises.py)
    both lost, though they were there  counts as a member without its promises

A list of one is taken only where nothing in the directory speaks of others: alone, a member asks nobody.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from cluster.archive.identity_file import identity_line, read_identity, write_identity
from cluster.archive.stored_recording import StoredRecording
from cluster.consensus.context import NULL_POSITION, ConsensusModuleContext
from cluster.consensus.identity import cluster_difference
from cluster.errors import OtherMembers
from cluster.log.term_event import first_term_event
from cluster.member.disk.member_files import MemberFiles
from cluster.protocol.frame import HEADER_LENGTH
from cluster.protocol.identity import ANY_MEMBER_ID, ClusterIdentity
from cluster.protocol.link import PromiseStatement
from cluster.protocol.log import NewLeadershipTermEvent
from cluster.protocol.recording_log import TERM


class IdentityKeeper:
    """``identity`` of a member, from ``begin`` on; None as long as it is to ask others for it."""

    def __init__(
        self, context: ConsensusModuleContext, files: MemberFiles, say: Callable[[str], None]
    ) -> None:
        """``say`` gets lines for people."""
        self._context = context
        self._files = files
        self._say = say
        self._cluster_directory = files.recording_log.path.rpartition("/")[0]
        self._is_first_term_sought = True
        self.identity: ClusterIdentity | None = None

    @property
    def stated(self) -> tuple[ClusterIdentity, ...]:
        """As a PromiseStatement has it."""
        return () if self.identity is None else (self.identity,)

    @property
    def _is_alone(self) -> bool:
        return len(self._context.member_ids) == 1

    # ---- the start

    def begin(self, promises: PromiseStatement | None, *, has_promises: bool) -> bool:
        """Read it, beside what promises.dat says; whether it is lost. Raises OtherMembers, StorageError."""
        archive = self._files.archive
        found = read_identity(archive.files, self._cluster_directory, archive.directory)
        for damage in found.damage:
            self._say(f"{damage}: set aside")
        identity = found.identity
        is_open = identity is None or identity.member_ids == ()
        if is_open and self._is_alone:
            self._check_may_be_alone(is_lost=bool(found.damage), has_promises=has_promises)
        if identity is None:
            return bool(found.damage) or bool(promises is not None and promises.cluster)
        self._check(identity, found.path)
        if is_open or identity.cluster_id is None or ANY_MEMBER_ID in identity.member_ids:
            self._report_first_start()
        if self._is_log_empty():
            # It is filled again by others, or begins again with a snapshot as an operator's tool has it.
            identity = identity.replace(first_term_timestamp=None, first_log_session_id=None)
        if not found.is_in_both or found.identity != self._completed(identity):
            self._write(identity)
        self.identity = self._completed(identity)
        return False

    def settle(self, *, is_new: bool) -> None:
        """Without an identity, take the configured cluster; log that, unless new. Raises StorageError."""
        if self.identity is None:
            if not is_new:
                self._report_first_start()
            self._write(ClusterIdentity(0))

    def adopt(self, identity: ClusterIdentity) -> bool:
        """Others have agreed on it; whether that is news. Raises OtherMembers, StorageError."""
        own = self.identity
        is_more = identity.first_term_timestamp is not None
        if own is not None and (own.first_term_timestamp is not None or not is_more):
            return False
        self._check(identity, f"{self._cluster_directory}: the others")
        self._write(identity)
        return True

    def _write(self, identity: ClusterIdentity) -> None:
        archive = self._files.archive
        self.identity = self._completed(identity)
        write_identity(archive.files, self._cluster_directory, archive.directory, self.identity)

    def _completed(self, identity: ClusterIdentity) -> ClusterIdentity:
        return identity.with_members(self._context.cluster_id, self._context.member_ids)

    def _report_first_start(self) -> None:
        self._say(f"from now on this directory is of a cluster of members {_list(self._context.member_ids)}")

    def _check(self, identity: ClusterIdentity, source: str) -> None:
        context = self._context
        if identity.cluster_id not in (None, context.cluster_id):
            raise OtherMembers(
                f"{source}: cluster {identity.cluster_id}, but cluster_id = {context.cluster_id} is "
                f"configured: expected {identity.cluster_id}"
            )
        ids = identity.member_ids
        is_of_one = ids == (ANY_MEMBER_ID,)
        if ids and ids != context.member_ids and not (is_of_one and self._is_alone):
            expected = "one member" if is_of_one else f"members {_list(ids)}"
            raise OtherMembers(
                f"{source}: {expected if is_of_one else identity_line(identity)}, but members "
                f"{_list(context.member_ids)} are configured: expected {expected}"
            )
        known = identity.first_log_session_id, identity.first_term_timestamp
        with self._stored_log() as stored:
            first = None if stored is None else _first_event(stored)
        if None not in known and first is not None:
            found = first.log_session_id, first.timestamp
            if found != known:
                raise OtherMembers(
                    f"{source}: a log that began with session {known[0]} at {known[1]}, but the one in "
                    f"{self._files.archive.directory} began with session {found[0]} at {found[1]}"
                )

    def _check_may_be_alone(self, *, is_lost: bool, has_promises: bool) -> None:
        """Raise OtherMembers where something in the directory speaks of other members."""
        own = f"but members has {self._context.member_id} alone"
        expected = "expected the list that it was started with"
        if is_lost:
            raise OtherMembers(f"{self._cluster_directory}: its identity.dat is lost, {own}: {expected}")
        if has_promises:
            raise OtherMembers(
                f"{self._cluster_directory}: promises.dat is of several members, {own}: {expected}"
            )
        if (event := self._other_leader()) is not None:
            raise OtherMembers(
                f"{self._cluster_directory}: member {event.leader_member_id} led term "
                f"{event.leadership_term_id} of its log, {own}: {expected}"
            )

    # ---- the log's own words

    @contextmanager
    def _stored_log(self) -> Iterator[StoredRecording | None]:
        """As the archive has it before the member looks for damage."""
        archive, term = self._files.archive, self._files.recording_log.find_last_term()
        descriptor = None if term is None else archive.find_recording(term.recording_id)
        if descriptor is None:
            yield None
            return
        if descriptor.stop_position == NULL_POSITION:  # this life writes it: how far is not in the catalog
            yield archive.recording(descriptor.recording_id)
            return
        checksum = archive.checksum_of(descriptor)  # a frame of which a bit has flipped is no other cluster's
        stored = StoredRecording(archive.files, archive.directory, descriptor, checksum)
        try:
            yield stored
        finally:
            stored.close_readers()

    def _is_log_empty(self) -> bool:
        with self._stored_log() as stored:
            return stored is None or stored.append_position == 0

    def _other_leader(self) -> NewLeadershipTermEvent | None:
        """A term that another member led, of those that the log has the bytes of."""
        with self._stored_log() as stored:
            if stored is None:
                return None
            bases = {
                entry.term_base_log_position
                for entry in self._files.recording_log.entries
                if entry.is_valid and entry.entry_type is TERM
            }
            read = partial(stored.read, max_length=HEADER_LENGTH)
            for base in sorted(bases):
                if stored.start_position <= base < stored.append_position:
                    event = first_term_event(read, base, stored.append_position)
                    if event is not None and event.leader_member_id != self._context.member_id:
                        return event
        return None

    # ---- while it runs

    def learn_first_term(self, recording: StoredRecording | None, commit_position: int) -> bool:
        """Take note of where the log began, once that is committed; whether it is news."""
        identity = self.identity
        if not self._is_first_term_sought or identity is None or commit_position == 0:
            return False
        self._is_first_term_sought = False
        event = None if recording is None else _first_event(recording)
        if identity.first_term_timestamp is not None or event is None:
            return False
        self._write(
            identity.replace(first_term_timestamp=event.timestamp, first_log_session_id=event.log_session_id)
        )
        return True

    def difference(self, reported: PromiseStatement) -> str | None:
        """Why a member is of another cluster, for people; None when it may be of this one."""
        if self.identity is None or not reported.cluster:
            return None
        return cluster_difference(reported.cluster[0], self.identity)


def _list(member_ids: tuple[int, ...]) -> str:
    return ", ".join(map(str, member_ids))


def _first_event(stored: StoredRecording) -> NewLeadershipTermEvent | None:
    """That of the whole log; its frame is kept when the log's head is purged."""
    return first_term_event(lambda _: stored.first_frame(), 0, HEADER_LENGTH)
