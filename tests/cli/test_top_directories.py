"""``cluster top --dir`` names a member as its mark file does, whatever its folder is called."""

import json
import os
import signal
import subprocess
from contextlib import closing

from cluster.archive.directory_lock import DirectoryLock
from cluster.archive.files import OsFiles
from cluster.archive.mark_files import ClusterMarkFile
from cluster.cli.main import main
from cluster.cli.running_member import why_delayed
from cluster.cli.top import Directories
from cluster.counters import CountersFile
from cluster.protocol.counter_types import CounterTypeId
from cluster.protocol.enums import ClusterBackupState, ClusterComponentType
from cluster.protocol.mark_file import CLUSTER_MARK_FILE_NAME
from cluster.transport.clock import epoch_ms
from tests.archive.logs import a_log
from tests.archive.members import allocate_counters, write_member
from tests.node.processes import run


def test_a_member_whose_process_lives_and_takes_no_turns_is_not_taken_for_one_that_does_not_run(
    tmp_path, capsys, monkeypatch
):
    """As while it waits for room on its disk: its counters are those of the life before."""
    monkeypatch.delenv("COLUMNS", raising=False)  # it would wrap lines
    write_member(tmp_path, a_log(5))
    counters = CountersFile.create(str(tmp_path / "driver" / "cnc.dat"), pid=1, now_ms=1)
    allocate_counters(counters)
    counters.close(orderly=False)
    lock = DirectoryLock.take(OsFiles(), str(tmp_path / "cluster"), CLUSTER_MARK_FILE_NAME, epoch_ms())
    says = (
        f"process {os.getpid()} lives and takes no turns, as while it starts, its disk is full or fails, or "
        "an inline service is in one callback"
    )

    assert main(["top", "--dir", str(tmp_path), "--once"]) == 1
    shown = capsys.readouterr().out
    assert "no answer" in shown and says in shown and "not running" not in shown
    assert main(["tool", "snapshot", "--dir", str(tmp_path)]) == 1
    assert says in capsys.readouterr().err
    lock.release()
    assert main(["top", "--dir", str(tmp_path), "--once"]) == 1
    assert "not running" in capsys.readouterr().out


def test_of_a_process_that_a_signal_has_stopped_it_is_said_how_it_goes_on(tmp_path):
    """At once, though its counters look fresh for ten seconds yet."""
    child = subprocess.Popen(["sleep", "60"])
    write_member(tmp_path, a_log(5))
    lock = DirectoryLock.take(OsFiles(), str(tmp_path / "cluster"), CLUSTER_MARK_FILE_NAME, epoch_ms())
    counters = CountersFile.create(str(tmp_path / "driver" / "cnc.dat"), pid=child.pid, now_ms=epoch_ms())
    allocate_counters(counters)
    with closing(Directories(tmp_path)) as members:
        try:
            assert members.look()[0]["isAlive"]
            child.send_signal(signal.SIGSTOP)
            os.waitpid(child.pid, os.WUNTRACED)
            assert not members.look()[0]["isAlive"]
            assert (
                why_delayed(child.pid)
                == f"process {child.pid} was stopped by a signal: kill -CONT {child.pid} has it go on"
            )
        finally:
            child.kill()
            child.wait()
    lock.release()
    counters.close()


def test_a_member_without_an_election_s_state_takes_no_part(tmp_path):
    """It tries in vain to begin a new life, as while its archive cannot be read."""
    write_member(tmp_path, a_log(5))
    lock = DirectoryLock.take(OsFiles(), str(tmp_path / "cluster"), CLUSTER_MARK_FILE_NAME, epoch_ms())
    counters = CountersFile.create(str(tmp_path / "driver" / "cnc.dat"), pid=os.getpid(), now_ms=epoch_ms())
    counters.allocate_cluster_counter(CounterTypeId.CONSENSUS_MODULE_ERRORS, 0, 0)
    with closing(Directories(tmp_path)) as members:
        assert not members.look()[0]["isAlive"]
    lock.release()
    counters.close()


def write_marked(home, component_type, member_id):
    for name in ("cluster", "driver"):
        (home / name).mkdir(parents=True)
    ClusterMarkFile.create(
        str(home / "cluster"),
        files=OsFiles(),
        component_type=component_type,
        now_ms=1,
        cluster_id=0,
        member_id=member_id,
        aeron_directory=str(home / "driver"),
        ingress_channel="aeron:udp",
    ).close()
    counters = CountersFile.create(str(home / "driver" / "cnc.dat"), pid=1, now_ms=1)
    counters.allocate(CounterTypeId.CLIENT_SESSION, b"", "a session")
    counters.close()


def test_a_backup_is_no_member_minus_one(tmp_path, capsys):
    write_marked(tmp_path / "backup", ClusterComponentType.BACKUP, -1)
    for command in (["top", "--once", "--counters"], ["status"]):
        main([*command, "--dir", str(tmp_path / "backup")])
        shown = capsys.readouterr().out.replace(str(tmp_path), "")  # the hundredth run of pytest has a -1
        assert "not running" in shown and "-1" not in shown
    main(["status", "--json", "--dir", str(tmp_path / "backup")])
    assert json.loads(capsys.readouterr().out)["backups"][0]["memberId"] is None


def test_a_backup_of_aeron_s_has_as_much_committed_log_as_it_has_recorded(tmp_path, capsys):
    """It has no counter of a commit position."""
    write_marked(tmp_path, ClusterComponentType.BACKUP, -1)
    (tmp_path / "driver" / "cnc.dat").unlink()
    counters = CountersFile.create(str(tmp_path / "driver" / "cnc.dat"), pid=1, now_ms=epoch_ms())
    counters.allocate_cluster_counter(CounterTypeId.BACKUP_STATE, 0, ClusterBackupState.BACKING_UP)
    counters.allocate_recording_position(0, 1, 100, position=4096)
    main(["status", "--dir", str(tmp_path)])
    assert "a backup, 4,096 bytes of committed log" in capsys.readouterr().out
    counters.close()


def test_a_stopped_member_has_the_id_of_its_mark_file_and_no_sessions(tmp_path):
    home = tmp_path / "lib"
    write_marked(home, ClusterComponentType.CONSENSUS_MODULE, 5)

    (member,) = json.loads(run("top", "--dir", str(home), "--once", "--json").stdout)["members"]
    assert (member["memberId"], member["isAlive"], member["sessions"]) == (5, False, 0)
