"""A history that goes by a script: who hears whom, who is wiped and started, and when."""

from collections.abc import Callable

from cluster.testing.member import host_of
from cluster.testing.world import MS, SECOND
from tests.simulation.history import History, Result
from tests.simulation.member import Member


def a_history(member_count: int, seed: int) -> History:
    """The first history from ``seed`` on with so many members, durable writes and short time-outs."""
    while True:
        history = History(seed)
        context = history.context
        is_fit = (
            len(context.member_ids) == member_count
            and history.settings.file_sync_level > 0
            and context.leader_heartbeat_timeout_ns == 2 * SECOND
        )
        if is_fit:
            return history
        seed += 1


class Script:
    """What befalls a history in place of a storm."""

    def __init__(self, member_count: int, seed: int) -> None:
        self.history = a_history(member_count, seed)
        self.world = self.history.world

    def run(self, script: Callable[[], None]) -> Result:
        self.history.nemesis.storm = script  # type: ignore[method-assign]
        result = self.history.run()
        assert not result.violation, result.violation
        return result

    def await_all(self) -> Member:
        """All members lead or follow; the leader."""
        members = self.history.members
        self.until(lambda: all(m.is_leading or m.is_following for m in members.values()), 20 * SECOND)
        self.world.run_until(self.world.now_ns + SECOND)
        leader = self.history.leader()
        assert leader is not None
        return leader

    def until(self, condition: Callable[[], bool], bound_ns: int) -> None:
        end_ns = self.world.now_ns + bound_ns
        while not condition():
            assert self.world.now_ns < end_ns, "it never came about"
            self.world.run_until(self.world.now_ns + 5 * MS)

    def block(self, sources: list[int], sinks: list[int], *, is_blocked: bool = True) -> None:
        for source in sources:
            for sink in sinks:
                if source != sink:
                    self.history.network.path(host_of(source), host_of(sink)).is_blocked = is_blocked

    def cut_off(self, member_id: int) -> None:
        ids = list(self.history.context.member_ids)
        self.block([member_id], ids)
        self.block(ids, [member_id])

    def join(self, *member_ids: int) -> None:
        self.block(list(member_ids), list(member_ids), is_blocked=False)

    def wipe(self, member_id: int) -> None:
        self.history.nemesis.wipe_member(member_id)

    def start(self, member_id: int) -> None:
        self.history.nemesis._start(member_id)
