"""An exception that is meant for nothing costs a life of a backup, as of a member, and not the process."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from cluster.archive.directory_lock import read_mark_header
from cluster.archive.files import OsFiles
from cluster.archive.mark_files import TERMINATED
from cluster.backup.agent import ClusterBackupAgent
from cluster.errors import StorageError, UnexpectedError
from cluster.node import disk_failures
from cluster.node.backup_config import BackupConfig
from cluster.node.backup_process import BackupProcess

MARKS = ("cluster/cluster-mark.dat", "archive/archive-mark.dat")


@pytest.fixture
def config(tmp_path):
    return BackupConfig(endpoints=f"ipc:{tmp_path}/nobody", dir=str(tmp_path / "backup"))


def has_ended(config):
    headers = [read_mark_header(OsFiles(), str(config.path / mark)) for mark in MARKS]
    return [header.activity_timestamp == TERMINATED for header in headers]


def test_a_backup_that_is_stopped_ends_in_order(config, monkeypatch):
    with BackupProcess(config) as process:
        monkeypatch.setattr(process.agent, "do_work", lambda *now: process.stop() or 1)
        process.run()
    assert has_ended(config) == [True, True]


def test_after_a_mistake_nothing_more_is_written_and_another_life_begins(config, monkeypatch):
    monkeypatch.setattr(disk_failures, "FIRST_PAUSE_NS", 1)
    lives, discarded = [], []

    def do_work(agent, *now):
        lives.append(agent)
        if len(lives) == 1:
            agent._retrieval = SimpleNamespace(copy=SimpleNamespace(discard=lambda: discarded.append(1)))
            raise KeyError("planted")
        process.stop()
        return 1

    begin = BackupProcess._begin_life
    ended = []

    def begin_life(process):
        ended.extend(has_ended(config) if lives else ())
        begin(process)

    monkeypatch.setattr(ClusterBackupAgent, "do_work", do_work)
    monkeypatch.setattr(BackupProcess, "_begin_life", begin_life)
    with BackupProcess(config) as process:
        process.run()
        assert process._counters.errors.get() == 1
    assert ended == [False, False] and not discarded
    assert len(lives) == 2 and lives[0] is not lives[1]
    text = (config.path / "backup.log").read_text()
    assert "KeyError: 'planted', in do_work (test_mistakes.py:" in text
    assert "Traceback" in text and UnexpectedError.code in text
    assert has_ended(config) == [True, True]


def test_after_a_disk_error_a_backup_ends_as_a_process_that_dies(config, monkeypatch):
    def fail(*now):
        raise StorageError("planted", 5, "syncing failed")

    with pytest.raises(StorageError), BackupProcess(config) as process:
        monkeypatch.setattr(process.agent, "do_work", fail)
        process.run()
    assert has_ended(config) == [False, False]
