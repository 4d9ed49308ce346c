"""What goes wrong between hosts: partitions whole and in part, slow and lossy paths, cuts, very old messages.

Member links carry log and consensus messages over one connection, so no fault can stop the one and let
the other through.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cluster.protocol.enums import ClusterControlToggle
from cluster.testing.member import host_of
from cluster.testing.world import MS, SECOND
from tests.simulation.backups import HOST as BACKUP_HOST

if TYPE_CHECKING:
    from tests.simulation.nemesis import Nemesis


class NetworkFaults:
    """The nemesis's faults of the network, by name."""

    def __init__(self, nemesis: Nemesis) -> None:
        self._nemesis = nemesis
        self._history = nemesis.history
        self._random = nemesis.random
        self.deposing = nemesis.history.world.random("depose")

    def by_name(self) -> dict[str, Callable[[], str | None]]:
        return {
            "partition": self._partition,
            "isolate the leader": self._isolate_leader,
            "bridge": self._bridge,
            "ring": self._ring,
            "swizzle": self._swizzle,
            "one way": self._one_way,
            "deaf": self._deaf,
            "mute": self._mute,
            "clog": self._clog,
            "slow paths": self._slow_paths,
            "lossy paths": self._lossy_paths,
            "cut connections": self._cut_connections,
            "partial transfers": self._partial_transfers,
            "old messages": self._old_messages,
        }

    def block_pairs(self, pairs: list[tuple[str, str]], duration_ns: int, told: str) -> None:
        network = self._history.network
        for source, sink in pairs:
            network.path(source, sink).is_blocked = True

        def undo() -> None:
            for source, sink in pairs:
                network.path(source, sink).is_blocked = False

        self._nemesis.later(duration_ns, told, undo)

    def block(self, ones: list[str], others: list[str], duration_ns: int, told: str) -> None:
        """Let two groups of hosts not hear each other for some time."""
        self.block_pairs(both_ways(ones, others), duration_ns, told)

    def _hosts(self) -> list[str]:
        return [host_of(i) for i in self._history.context.member_ids]

    def _client_hosts(self) -> list[str]:
        backup = [] if self._history.backup is None else [BACKUP_HOST]
        return [client.host for client in self._history.clients] + backup

    def _partition(self) -> str | None:
        hosts = self._hosts()
        if len(hosts) < 2:
            return None
        self._random.shuffle(hosts)
        cut = self._random.randint(1, len(hosts) - 1)
        one, two = hosts[:cut], hosts[cut:]
        for client in self._client_hosts():
            side = self._random.choice([one, two, []])
            side.append(client)
        duration_ns = self._nemesis.duration_ns()
        self.block_pairs(both_ways(one, two), duration_ns, "the partition ends")
        return f"{' '.join(one)} | {' '.join(two)} for {duration_ns / SECOND:.3f} s"

    def _isolate_leader(self) -> str | None:
        leader = self._history.leader()
        hosts = self._hosts()
        if leader is None or len(hosts) < 2:
            return None
        others = [host for host in hosts if host != leader.host]
        duration_ns = self._nemesis.duration_ns()
        self.block_pairs(both_ways([leader.host], others), duration_ns, "the leader is isolated no more")
        return f"{leader.host} for {duration_ns / SECOND:.3f} s"

    def depose(self) -> str | None:
        """The leader loses its majority and not its clients until others lead: what it wrote is cut.

        Meanwhile it may be asked for something that comes to nothing. Then, maybe, it is the next's turn.
        """
        return self._depose(self.deposing.choice([1, 1, 2, 3]))

    def _depose(self, left: int) -> str | None:
        leader, random, history = self._history.leader(), self.deposing, self._history
        hosts = self._hosts()
        if left == 0 or leader is None or len(hosts) < 2:
            return None
        others = [host for host in hosts if host != leader.host]
        random.shuffle(others)
        lost = others[random.randint(0, history.quorum - 2) :]  # the rest is too few to commit anything
        duration_ns = history.context.leader_heartbeat_timeout_ns + random.randrange(3 * SECOND)
        self.block_pairs(
            both_ways([leader.host], lost), duration_ns, f"{leader.host} hears {' '.join(lost)} again"
        )
        now_ns = history.world.now_ns
        what, ask = random.choice(self._vain())
        history.world.at(now_ns + random.randrange(SECOND), lambda: self._nemesis.is_storm and ask())
        pause_ns = random.choice([0, 500 * MS, 3 * SECOND])
        history.world.at(now_ns + duration_ns + pause_ns, self._depose_next, left - 1)
        return f"{leader.host} without {' '.join(lost)} for {duration_ns / SECOND:.3f} s, meanwhile {what}"

    def _depose_next(self, left: int) -> None:
        if self._nemesis.is_storm and (told := self._depose(left)) is not None:
            self._nemesis.say(f"depose the leader: {told}")

    def _vain(self) -> list[tuple[str, Callable[[], object]]]:
        nemesis = self._nemesis
        return [
            ("nothing", lambda: None),
            ("a snapshot", lambda: nemesis.toggle(ClusterControlToggle.SNAPSHOT)),
            ("a suspension", nemesis.suspend),
            ("a client vanishes", lambda: self.deposing.choice(self._history.clients).vanish()),
            ("the clients leave", lambda: [client.urge("") for client in self._history.clients]),
            ("all clients vanish", lambda: [client.vanish() for client in self._history.clients]),
        ]

    def _bridge(self) -> str | None:
        """Two sides that only one member between them hears and reaches."""
        hosts = self._hosts()
        if len(hosts) < 3:
            return None
        self._random.shuffle(hosts)
        between, others = hosts[0], hosts[1:]
        cut = self._random.randint(1, len(others) - 1)
        one, two = others[:cut], others[cut:]
        duration_ns = self._nemesis.duration_ns()
        self.block_pairs(both_ways(one, two), duration_ns, "the bridge is one no more")
        return f"{' '.join(one)} - {between} - {' '.join(two)} for {duration_ns / SECOND:.3f} s"

    def _ring(self) -> str | None:
        """Each member reaches its two neighbours alone."""
        hosts = self._hosts()
        if len(hosts) < 4:
            return None
        self._random.shuffle(hosts)
        count = len(hosts)
        apart = [
            (hosts[i], hosts[j])
            for i in range(count)
            for j in range(count)
            if i != j and (i - j) % count not in (1, count - 1)
        ]
        duration_ns = self._nemesis.duration_ns()
        self.block_pairs(apart, duration_ns, "the ring is one no more")
        return f"{' - '.join(hosts)} for {duration_ns / SECOND:.3f} s"

    def _swizzle(self) -> str | None:
        """Hosts fall silent one after the other, and come back in another order."""
        hosts = self._hosts()
        if len(hosts) < 2:
            return None
        self._random.shuffle(hosts)
        step_ns = self._random.randrange(20 * MS, SECOND)
        back = list(range(len(hosts)))
        self._random.shuffle(back)
        for order, host in enumerate(hosts):
            silent_ns = (len(hosts) - order + back[order]) * step_ns
            pairs = both_ways([host], [other for other in hosts if other != host])
            self._history.world.at(
                self._history.world.now_ns + order * step_ns,
                self._block_in_storm,
                pairs,
                silent_ns,
                f"{host} is heard again",
            )
        return f"{' '.join(hosts)} every {step_ns / SECOND:.3f} s"

    def _block_in_storm(self, pairs: list[tuple[str, str]], duration_ns: int, told: str) -> None:
        if self._nemesis.is_storm:
            self.block_pairs(pairs, duration_ns, told)

    def _one_way(self) -> str | None:
        hosts = self._hosts()
        if len(hosts) < 2:
            return None
        source, sink = self._random.sample(hosts, 2)
        duration_ns = self._nemesis.duration_ns()
        self.block_pairs([(source, sink)], duration_ns, f"{sink} hears {source} again")
        return f"{sink} does not hear {source} for {duration_ns / SECOND:.3f} s"

    def _deaf(self) -> str | None:
        """Can send, cannot hear."""
        hosts = self._hosts()
        if len(hosts) < 2:
            return None
        sink = self._random.choice(hosts)
        duration_ns = self._nemesis.duration_ns()
        self.block_pairs([(host, sink) for host in hosts if host != sink], duration_ns, f"{sink} hears again")
        return f"{sink} for {duration_ns / SECOND:.3f} s"

    def _mute(self) -> str | None:
        """Can hear, cannot send."""
        hosts = self._hosts()
        if len(hosts) < 2:
            return None
        source = self._random.choice(hosts)
        duration_ns = self._nemesis.duration_ns()
        self.block_pairs(
            [(source, host) for host in hosts if host != source], duration_ns, f"{source} is heard again"
        )
        return f"{source} for {duration_ns / SECOND:.3f} s"

    def _clog(self) -> str:
        hosts = self._hosts() + self._client_hosts()
        source, sink = self._random.choice(hosts), self._random.choice(hosts)
        duration_ns = self._nemesis.duration_ns()
        self._history.network.path(source, sink).clogged_until_ns = self._history.world.now_ns + duration_ns
        return f"{source} to {sink} for {duration_ns / SECOND:.3f} s"

    def _slow_paths(self) -> str:
        delay_ns = self._random.choice([1, 5, 40, 300]) * MS
        hosts = self._hosts() + self._client_hosts()
        slow = [(a, b) for a in hosts for b in hosts if a != b and self._random.random() < 0.5]
        network = self._history.network
        for source, sink in slow:
            path = network.path(source, sink)
            path.delay_ns, path.jitter = delay_ns, self._random.choice([0.1, 1.0, 5.0])

        def undo() -> None:
            for source, sink in slow:
                network.path(source, sink).delay_ns = network.defaults.delay_ns

        self._nemesis.later(self._nemesis.duration_ns(), "paths are fast again", undo)
        return f"{len(slow)} of {len(hosts) * (len(hosts) - 1)} by {delay_ns // MS} ms"

    def _lossy_paths(self) -> str:
        chance = self._random.choice([0.01, 0.05, 0.3])
        hosts = self._hosts()
        network = self._history.network
        paths = [network.path(a, b) for a in hosts for b in hosts if a != b]
        for path in paths:
            path.stall_chance = chance

        def undo() -> None:
            for path in paths:
                path.stall_chance = 0.0

        self._nemesis.later(self._nemesis.duration_ns(), "paths lose nothing any more", undo)
        return f"{chance:.0%}"

    def _cut_connections(self) -> str | None:
        member = self._nemesis.any_member(running=False)
        if member is None:
            return None
        cut = [sock for sock in member.poller.connections() if self._random.random() < 0.5]
        for sock in cut:
            self._history.network.cut(sock)
        return f"{len(cut)} of member {member.member_id}"

    def _partial_transfers(self) -> str:
        chance = self._random.choice([0.05, 0.5])
        self._history.network.partial_chance = chance

        def undo() -> None:
            self._history.network.partial_chance = 0.0

        self._nemesis.later(self._nemesis.duration_ns(), "transfers are whole again", undo)
        return f"{chance:.0%} of reads and writes"

    def _old_messages(self) -> str | None:
        """What a member sent long ago comes once more. Not of a life that it has forgotten."""
        member = self._nemesis.any_member()
        if member is None:
            return None
        return f"{self._history.recorder.replay(member, self._random)} of member {member.member_id}"


def both_ways(one: list[str], two: list[str]) -> list[tuple[str, str]]:
    """The paths between two groups of hosts."""
    return [(a, b) for a in one for b in two] + [(b, a) for a in one for b in two]
