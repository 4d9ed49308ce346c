"""What an operator asks for, by the toggles in cnc.dat (Aeron: ClusterControl, NodeControl).

    control toggle   INACTIVE without leadership; a leader's NEUTRAL takes a request, and says that it is done
    node toggle      of each member; INACTIVE before its first election

A member writes them here and nowhere else. Operators set them in cnc.dat (node/control.py).
"""

from dataclasses import dataclass
from typing import Protocol

from cluster.archive.archive import Archive
from cluster.archive.recording_log import RecordingLog
from cluster.consensus.context import NULL_POSITION, NULL_VALUE
from cluster.counters import Counter
from cluster.member.counters import MemberCounters
from cluster.member.reporter import Reporter
from cluster.protocol.enums import ClusterControlToggle, NodeControlToggle
from cluster.protocol.recording_log import SNAPSHOT

# Ours, beside the reference's: in the lower half of the control toggle; above it 1 + the member, 0 for any.
TRANSFER_LEADERSHIP = 1111
_HALF = 32
GOES_ON_LEADING = "goes on leading"  # begins the event that says why a transfer was given up


def transfer_toggle(target_id: int = NULL_VALUE) -> int:
    """What the control toggle is set to, to have a member lead; NULL_VALUE: whichever is best."""
    return target_id + 1 << _HALF | TRANSFER_LEADERSHIP


def transfer_target(toggle: int) -> int | None:
    """The member that is to lead; None when the toggle asks for something else."""
    is_transfer = toggle & (1 << _HALF) - 1 == TRANSFER_LEADERSHIP
    return (toggle >> _HALF) - 1 if is_transfer else None


class Toggles:
    """Both toggles of a member."""

    def __init__(self, counters: MemberCounters) -> None:
        self._control: Counter = counters.control_toggle
        self._node: Counter = counters.node_control_toggle
        self.snapshot_position = NULL_POSITION  # of the snapshot that the control toggle asks for, in the log

    def on_leading(self) -> None:
        self._control.set(ClusterControlToggle.NEUTRAL)

    def on_election(self) -> None:
        self._control.set(ClusterControlToggle.INACTIVE)
        self.snapshot_position = NULL_POSITION

    def on_snapshot_done(self, log_position: int) -> None:
        """The snapshot at this position is taken, or could not be."""
        if log_position == self.snapshot_position:
            self.snapshot_position = NULL_POSITION
            self.done()

    def on_established(self) -> None:
        """The member leads or follows, for the first time maybe."""
        if self._node.get() == NodeControlToggle.INACTIVE:
            self._node.set(NodeControlToggle.NEUTRAL)

    def request(self, action: int) -> bool:
        """Ask for an action; False while another one is under way, and on a member that does not lead."""
        return self._control.compare_and_set(ClusterControlToggle.NEUTRAL, action)

    @property
    def requested(self) -> int | None:
        """The action that is asked for, a number that is none maybe; None without one."""
        value = self._control.get()
        return None if value in (ClusterControlToggle.NEUTRAL, ClusterControlToggle.INACTIVE) else value

    def done(self) -> None:
        """The action is carried out, or cannot be; the next one may be asked for."""
        self._control.set(ClusterControlToggle.NEUTRAL)

    @property
    def requested_of_node(self) -> int | None:
        """What this member alone is asked for; None without a request."""
        value = self._node.get()
        return None if value in (NodeControlToggle.NEUTRAL, NodeControlToggle.INACTIVE) else value

    def node_done(self) -> None:
        self._node.set(NodeControlToggle.NEUTRAL)


class StandbyReplication(Protocol):
    """Fetches the newest snapshot of a standby (disk/standby_snapshots.py)."""

    @property
    def is_replicating(self) -> bool: ...

    def replicate(self) -> None: ...


@dataclass(eq=False)
class NodeControl:
    """Carries out what this member alone is asked for."""

    _toggles: Toggles
    _recording_log: RecordingLog
    _archive: Archive
    _standby_snapshots: StandbyReplication
    _reporter: Reporter
    _is_replicating: bool = False

    def do_work(self) -> int:
        """Take what is asked for; returns how much was done."""
        request = self._toggles.requested_of_node
        if request is None:
            return 0
        if request == NodeControlToggle.REPLICATE_STANDBY_SNAPSHOT:
            if not self._is_replicating:
                self._standby_snapshots.replicate()
            self._is_replicating = self._standby_snapshots.is_replicating
            if self._is_replicating:
                return 0
        if request == NodeControlToggle.VALIDATE_RECORDING_LOG:
            self._validate_recording_log()
        self._toggles.node_done()
        return 1

    def _validate_recording_log(self) -> None:
        """Make entries invalid whose recording the archive does not know (Aeron: RecordingLogValidator)."""
        for entry in list(self._recording_log.entries):
            is_lost = not self._archive.has_recording(entry.recording_id)
            if entry.entry_type is SNAPSHOT and entry.is_valid and is_lost:
                self._reporter.event(
                    f"the snapshot at {entry.log_position} of service {entry.service_id} is invalid: the "
                    f"archive has no recording {entry.recording_id}"
                )
                self._recording_log.invalidate(entry)
