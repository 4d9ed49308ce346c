"""A standby of a cluster in memory: a backup with the members' service, which shares its thread."""

from __future__ import annotations

from dataclasses import replace

from cluster.backup.counters import StandbyCounters
from cluster.backup.standby import Standby
from cluster.member.disk.snapshots import read_snapshot
from cluster.service.agent import ClusteredServiceAgent
from cluster.service.container_snapshot import ArchivedSnapshots
from cluster.service.service_context import ServiceContext
from tests.backup.in_memory import Backup
from tests.member.in_memory.member import HashingEcho

NULL = -1


class InlineHost:
    """A ``StandbyHost`` of services that are made of a function of their id."""

    def __init__(self, life, make_service):
        self.agents = [
            ClusteredServiceAgent(
                make_service(service_id),
                channel,
                lambda: life.position,
                ServiceContext(
                    service_id=service_id,
                    client_id=service_id + 1,
                    member_id=life.context.member_id,
                    app_version=life.context.app_version,
                ),
                snapshots=ArchivedSnapshots(service_id, life.archive, channel),
            )
            for service_id, channel in enumerate(life.channels)
        ]

    def do_work(self, now_ns, cluster_time):
        return sum(agent.do_work(now_ns, cluster_time) for agent in self.agents)

    def close(self):
        for agent in self.agents:
            agent.close()


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
            lambda life: InlineHost(life, self.make_service),
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
