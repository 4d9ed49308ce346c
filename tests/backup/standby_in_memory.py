"""A standby of a cluster in memory: a backup with the members' service, which shares its thread."""

from __future__ import annotations

from dataclasses import replace

from cluster.backup.counters import StandbyCounters
from cluster.backup.standby import Standby
from cluster.member.disk.snapshots import read_snapshot
from cluster.protocol.enums import ClusterControlToggle
from tests.backup.in_memory import Backup
from tests.backup.inline_host import host_inline
from tests.member.cluster_steps import toggle
from tests.member.in_memory.member import HashingEcho

NULL = -1


class StandbyInMemory(Backup):
    """``service`` is that of its present life."""

    member_id = NULL

    def start(self):
        super().start()
        self.service = None
        self.taken = []
        context = self.cluster.context_of(0)
        self.standby = Standby(
            replace(context, member_id=NULL, member_ids=(NULL,), is_standby=True),
            self.directory,
            StandbyCounters(self.counters, context.cluster_id),
            lambda life: host_inline(life, self.make_service),
            on_event=self.events.append,
            on_error=self.errors.append,
            on_snapshot=self.taken.append,
        )

    def make_service(self, service_id):
        self.service = HashingEcho(self)
        return self.service

    def turn(self):
        self.standby.do_work(self.cluster.world.now_ns, is_retrieving=self.agent.is_retrieving)
        super().turn()

    def await_services(self):
        """Until they have all that the leader has committed."""
        self.await_level()
        self.run_until(lambda: self.services_at == self.position)

    @property
    def services_at(self):
        life = self.standby.life
        return 0 if life is None else life.channels[0].log_position

    def module_snapshot(self, position):
        """The records of the module's snapshot at a position."""
        return records_at(self.directory.recording_log, self.standby.life.archive, position)


def records_at(recording_log, archive, position):
    """What the module has in the snapshot at a position, checked, and the bytes of the service's."""
    [entries] = [e for e in recording_log.snapshot_sets(1) if e[0].log_position == position]
    read_snapshot(archive, entries)
    return [list(archive.open(entry.recording_id)) for entry in entries]


def take_standby_snapshot(standby):
    """Returns its position."""
    count = len(standby.taken)
    toggle(standby.cluster, ClusterControlToggle.STANDBY_SNAPSHOT)
    standby.run_until(lambda: len(standby.taken) > count)
    return standby.taken[-1]
