"""Mistakes of backups, put into production code one at a time (mistakes.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cluster.backup.copied_log import CopiedLog
from cluster.backup.directory import BackupDirectory
from cluster.backup.standby import StandbyLife
from cluster.service.channel import RecoveryState
from tests.simulation.mistakes import Patch, Sought


def copy_shown_before_it_is_synced(patch: Patch) -> None:
    patch(CopiedLog, "synced_position", CopiedLog.position)
    patch(CopiedLog, "sync", lambda self: self.position)


def term_missing_in_a_backup(patch: Patch) -> None:
    """Of the terms that come in one piece of the log only the first is recorded."""
    sync = CopiedLog.sync

    def forgetful(self: Any) -> int:
        del self._read_terms[1:]
        return sync(self)

    patch(CopiedLog, "sync", forgetful)


def snapshot_named_before_the_log_is_there(patch: Patch) -> None:
    check_snapshot = BackupDirectory.check_snapshot

    def hasty(self: Any, name: str, entries: Any) -> None:
        check_snapshot(self, name, entries)
        self.name(entries)

    patch(BackupDirectory, "check_snapshot", hasty)


def standby_without_the_state_of_its_snapshot(patch: Patch) -> None:
    load = StandbyLife._load

    def forgetful(self: Any, snapshot: Any) -> RecoveryState:
        return replace(load(self, snapshot), leadership_term_id=-1)

    patch(StandbyLife, "_load", forgetful)


BACKUP_MISTAKES: dict[Callable[[Patch], None], Sought] = {
    copy_shown_before_it_is_synced: Sought(("I-23",)),
    term_missing_in_a_backup: Sought(("I-23",)),
    snapshot_named_before_the_log_is_there: Sought(("I-23",)),
    standby_without_the_state_of_its_snapshot: Sought(("I-23",)),
}
