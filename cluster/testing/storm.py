"""One seed's history of somebody's service: members die and come back, snapshots are taken, time goes by."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from random import Random
from typing import Any

from cluster.errors import ClusterError
from cluster.testing.backwards import led_to
from cluster.testing.client import SimulatedClient
from cluster.testing.cluster import SimulatedCluster
from cluster.testing.diagnosis import MakeService
from cluster.testing.stories.narration import as_seed

Messages = Callable[[Random], bytes]

STEPS = (6, 14)  # of a history, at least and at most
BURST_MAX = 20  # messages that a client offers at once
PAUSES_S = (0.0, 0.05, 0.5, 3.0)  # between two steps; now and then long, for timers
LONG_PAUSE_S = 30.0
SHOWN_MAX = 200  # characters


@dataclass(slots=True)
class Outcome:
    """How a seed went. ``digest`` is over states and answers: equal in every process that plays the seed."""

    seed: int
    messages: int
    answers: int
    raised: int  # by callbacks
    first_error: str
    digest: str
    failure: str
    ended: list[str]  # what the digest is over, each cut to what people read
    story: list[str]
    document: dict[str, Any] | None  # of a story that was watched, for a page


class _Storm:
    """What may happen between two bursts of messages; a majority stays up, but for an instant."""

    def __init__(self, cluster: SimulatedCluster, random: Random, members: int) -> None:
        self._cluster = cluster
        self._random = random
        self._members = members

    def strike(self) -> None:
        strikes = self._nothing, self._kill, self._kill_leader, self._stop, self._all, self._return
        self._random.choice((*strikes, self._snapshot))()

    def _nothing(self) -> None:
        pass

    def _can_spare(self) -> bool:
        return len(self._cluster.running) > self._members // 2 + 1

    def _kill(self) -> None:
        if self._can_spare():
            self._cluster.kill(self._random.choice(self._cluster.running))

    def _kill_leader(self) -> None:
        if self._can_spare() and (leader := self._cluster.leader) is not None:
            self._cluster.kill(leader)

    def _stop(self) -> None:
        if self._can_spare():
            self._cluster.stop(self._random.choice(self._cluster.running))

    def _return(self) -> None:
        for member_id in range(self._members):
            if member_id not in self._cluster.running:
                self._cluster.start(member_id)

    def _snapshot(self) -> None:
        self._cluster.take_snapshot()

    def _all(self) -> None:
        """Everybody at once, as a rack does: sessions end."""
        for member_id in self._cluster.running:
            self._cluster.kill(member_id)
        self._return()

    def calm(self) -> None:
        """Everybody is back; one starts from the snapshot and the rest of the log."""
        self._return()
        self._cluster.take_snapshot()
        self._cluster.kill(self._random.randrange(self._members))
        self._return()


def play(
    services: Sequence[MakeService],
    messages: Messages,
    seed: int,
    *,
    members: int = 3,
    watched: bool = False,
) -> Outcome:
    """Let one history happen, and judge the services by ``SimulatedCluster.check``.

    In every other seed members take turns in compiled code where they can. The outcome of one that is
    ``watched`` has all messages, the last ``narration.LINES_MAX`` of them.
    """
    cluster = SimulatedCluster(
        *services, members=members, seed=seed, compiled_turns=seed % 2 == 0, watched=watched
    )
    random = cluster.world.random("storm")
    offered, failure = 0, ""
    try:
        storm = _Storm(cluster, random, members)
        for _ in range(random.randint(*STEPS)):
            client = _some_client(cluster, random)
            for _ in range(random.randint(1, BURST_MAX)):
                if not client.is_closed:
                    client.offer(messages(random))
                    offered += 1
            storm.strike()
            cluster.run(LONG_PAUSE_S if random.random() < 0.05 else random.choice(PAUSES_S))
        storm.calm()
        cluster.check()
    except ClusterError as error:
        failure = f"{type(error).__name__}: {error}"
    errors = cluster.service_errors
    return Outcome(
        seed=seed,
        messages=offered,
        answers=sum(len(client.received) for client in cluster.clients),
        raised=len(errors),
        first_error=str(errors[0][1]) if errors else "",
        digest="" if failure else blake2b(repr(ended := _ended(cluster)).encode(), digest_size=8).hexdigest(),
        failure=failure,
        ended=[] if failure else [line[:SHOWN_MAX] for line in ended],
        story=cluster.story,
        document=_document(cluster, seed, failure) if watched else None,
    )


def _document(cluster: SimulatedCluster, seed: int, failure: str) -> dict[str, Any]:
    """The story, with what led to its end, if that is known, and how it ended as the last sentence."""
    said = cluster.happenings
    sentences = {place: text for cause in cluster.causes for place, text in led_to(cause.entry, said).items()}
    sentences[len(said) - 1] = failure or "All members have the same state, and all clients its answers."
    return as_seed(seed, said, sentences, cluster.heard_ns, fails=bool(failure))


def _some_client(cluster: SimulatedCluster, random: Random) -> SimulatedClient:
    """One of a few with an open session, or a new one."""
    is_open = [client for client in cluster.clients if not client.is_closed]
    if len(is_open) < 3 and (not is_open or random.random() < 0.3):
        return cluster.connect()
    return random.choice(is_open)


def _ended(cluster: SimulatedCluster) -> list[str]:
    """States and answers."""
    member_id = cluster.running[0]
    states = [
        f"record {number} of the snapshot of service {service_id} is {record!r}"
        for service_id in range(len(cluster.make_services))
        for number, record in enumerate(cluster.state(member_id, service_id))
    ]
    answers = [
        f"{client.name} got {answer!r} as answer {number}"
        for client in cluster.clients
        for number, answer in enumerate(client.received)
    ]
    return states + answers
