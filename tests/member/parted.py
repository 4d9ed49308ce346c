"""A cluster in memory whose members are started with lists that are not the same."""

from dataclasses import replace

from cluster.member.disk.identity_keeper import IdentityKeeper
from tests.member.in_memory.cluster import LONG_NS, QUICK, InvariantBroken, SimulatedCluster


class Parted(SimulatedCluster):
    """A cluster whose members may be started with another list of members."""

    class NobodyLeads(Exception):
        """Of those that were started with a list of their own."""

    def __init__(self, *arguments, **settings):
        self.list_of = {}
        super().__init__(*arguments, **(QUICK | settings))
        self.await_leader(timeout_ns=2 * LONG_NS)
        self.commit(b"first")
        self.await_level()

    def context_of(self, member_id):
        context = super().context_of(member_id)
        return replace(context, member_ids=self.list_of.get(member_id, context.member_ids))

    def after_turn(self, member):
        pass

    def on_applied(self, member_id, position, chain):
        pass

    def stop(self):
        for member in self.members:
            member.stop()

    def commit(self, text):
        """By a client of its own, which is told that it is, and goes."""
        client = self.add_client()
        client.send(b"%d:" % client.client_id + text)
        self.run_until(lambda: client.acknowledged == 1, 2 * LONG_NS)
        client.close()
        client.is_lost = True

    def run_alone(self, *ids, starting=None, lives=1):
        """Start these with a list of themselves, and let them commit something in each of their lives."""
        members = [self.members[id_] for id_ in starting or ids]
        for _ in range(lives):
            for member in members:
                self.list_of[member.member_id] = ids
                member.start()
            try:
                self.run_until(lambda: any(member.is_leading for member in members), 3 * LONG_NS)
            except InvariantBroken as error:
                raise self.NobodyLeads from error
            leader = next(member for member in members if member.is_leading)
            begin = leader.append_position
            self.commit(b"alone")
            assert leader.commit_position > begin
            self.stop()
        self.list_of.clear()

    def start(self, *ids):
        for id_ in ids or range(self.member_count):
            self.members[id_].start()

    def told(self, member, text):
        return [line for line in self.events if line.startswith(f"{member.name}: ") and text in line]


def forget_identity(monkeypatch):
    """Directories are not known to be of a cluster from here on, as those of the release before."""
    monkeypatch.setattr(IdentityKeeper, "stated", ())
    for name in ("_check", "_check_may_be_alone"):
        monkeypatch.setattr(IdentityKeeper, name, lambda *_, **__: None)
