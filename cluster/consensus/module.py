"""What a leader has written and not yet seen committed, and what losing leadership undoes."""

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

from cluster.protocol.enums import ConsensusModuleState

Value = TypeVar("Value")


class UncommittedEntries(Generic[Value]):
    """Entries of one kind in the order of their positions: (end position, what it was)."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: deque[tuple[int, Value]] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Value]:
        return (value for _, value in self._entries)

    def add(self, log_position: int, value: Value) -> None:
        assert not self._entries or log_position >= self._entries[-1][0]
        self._entries.append((log_position, value))

    def sweep(self, commit_position: int) -> list[Value]:
        """Drop what is committed and return it."""
        committed = []
        while self._entries and self._entries[0][0] <= commit_position:
            committed.append(self._entries.popleft()[1])
        return committed

    def take_uncommitted(self, commit_position: int) -> list[Value]:
        """Leadership is lost: all that is not committed, oldest first; nothing is left."""
        self.sweep(commit_position)
        uncommitted = [value for _, value in self._entries]
        self._entries.clear()
        return uncommitted


class ModuleState:
    """State of the consensus module; a change that came by the log is undone with its entry (C-309)."""

    __slots__ = ("_uncommitted_previous", "state")

    def __init__(self) -> None:
        self.state = ConsensusModuleState.INIT
        self._uncommitted_previous: UncommittedEntries[int] = UncommittedEntries()

    def change(self, state: ConsensusModuleState) -> None:
        assert self.state is not ConsensusModuleState.CLOSED or state is ConsensusModuleState.CLOSED
        self.state = state

    def change_by_log(self, state: ConsensusModuleState, log_position: int) -> None:
        """The leader appended an action that changes the state; its entry ends at ``log_position``."""
        self._uncommitted_previous.add(log_position, int(self.state))
        self.change(state)

    def sweep(self, commit_position: int) -> None:
        self._uncommitted_previous.sweep(commit_position)

    def restore_uncommitted(self, commit_position: int) -> None:
        """Back to the state before the first action that is not committed, unless closed."""
        uncommitted = self._uncommitted_previous.take_uncommitted(commit_position)
        if uncommitted and self.state is not ConsensusModuleState.CLOSED:
            self.state = ConsensusModuleState(uncommitted[0])

    @property
    def has_uncommitted(self) -> bool:
        """Whether the state came with an entry that is not committed, and may be undone with it."""
        return len(self._uncommitted_previous) > 0

    @property
    def is_active(self) -> bool:
        return self.state is ConsensusModuleState.ACTIVE

    @property
    def is_in_snapshot(self) -> bool:
        """Whether services take snapshots: nothing is processed until they have."""
        return self.state is ConsensusModuleState.SNAPSHOT

    @property
    def reads_log(self) -> bool:
        """Whether a follower, a replay or a catch-up takes log and ingress."""
        return self.state in (ConsensusModuleState.ACTIVE, ConsensusModuleState.SUSPENDED)
