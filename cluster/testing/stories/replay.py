"""A leader that replays its log, and a follower that catches up."""

from __future__ import annotations

from cluster.testing.cluster import SimulatedCluster
from cluster.testing.stories.stage import Stage, service_of, story

PAGE = "Leader replay"


def _restart(cluster: SimulatedCluster) -> int:
    """All members are killed and started; who leads then."""
    for member in range(3):
        cluster.kill(member)
    for member in range(3):
        cluster.start(member)
    leader = cluster.await_leader()
    cluster.run(1)
    return leader


@story("leader-replay-nothing", "A leader that has nothing to replay", page=PAGE)
def leader_replay_nothing(stage: Stage) -> None:
    cluster = stage.cluster()
    leader = cluster.await_leader()
    cluster.run(1)
    stage.step("A majority holds the leader's log, which is empty.", leader, "election .* -> LEADER_REPLAY")
    stage.step("There is nothing to replay.", leader, "election LEADER_REPLAY -> LEADER_INIT")


@story("leader-replay-from-zero", "A leader replays its log from the begin", page=PAGE)
def leader_replay_from_zero(stage: Stage) -> None:
    cluster = stage.cluster()
    alice = cluster.connect("alice")
    alice.offer(b"one")
    alice.offer(b"two")
    cluster.settle()
    alice.pause()
    stage.begin()
    leader = _restart(cluster)
    service = service_of(leader)
    stage.step("There is no snapshot: the service starts from nothing.", service, "onStart$")
    stage.step("A majority holds the leader's log.", leader, "election .* -> LEADER_REPLAY")
    stage.step("The service is asked to join the replay, as a follower.", leader, "JoinLog .*role=FOLLOWER")
    stage.step("It acknowledges that it has joined.", service, "ServiceAck logPosition=0", to=leader)
    stage.step("It gets the session back from the log.", service, "onSessionOpen")
    stage.step("Then the messages, of which it answers none.", service, "onSessionMessage 'one'")
    stage.step("The last one.", service, "onSessionMessage 'two'")
    stage.step("The log is processed to its end.", leader, "election LEADER_REPLAY -> LEADER_INIT")


@story("leader-replay-from-snapshot", "A leader replays its log from a snapshot", page=PAGE)
def leader_replay_from_snapshot(stage: Stage) -> None:
    cluster = stage.cluster()
    alice = cluster.connect("alice")
    alice.offer(b"one")
    cluster.take_snapshot()
    alice.offer(b"two")
    cluster.settle()
    alice.pause()
    stage.begin()
    leader = _restart(cluster)
    service = service_of(leader)
    stage.step("The service starts from the snapshot.", service, "onStart from a snapshot")
    stage.step("It acknowledges the position of the snapshot.", service, "ServiceAck logPosition=[1-9]")
    stage.step("A majority holds the leader's log.", leader, "election .* -> LEADER_REPLAY")
    stage.step("The service is to join the replay from there on.", leader, "JoinLog logPosition=[1-9]")
    stage.step("It acknowledges that it has joined.", service, "ServiceAck logPosition=[1-9]", to=leader)
    stage.step("It gets only what came after the snapshot.", service, "onSessionMessage 'two'")
    stage.step("The log is processed to its end.", leader, "election LEADER_REPLAY -> LEADER_INIT")


@story("follower-catches-up", "A follower that was away catches up", page="Canvass")
def follower_catches_up(stage: Stage) -> None:
    cluster = stage.cluster()
    alice = cluster.connect("alice")
    alice.offer(b"one")
    cluster.settle()
    leader = cluster.await_leader()
    follower = (leader + 1) % 3
    cluster.kill(follower)
    alice.offer(b"two")
    cluster.settle()
    stage.begin()
    cluster.start(follower)
    cluster.settle()
    stage.step("The member says where its log ends.", follower, "CanvassPosition", to=leader)
    stage.step("It hears who leads, and where the leader's log is.", leader, "NewLeadershipTerm ")
    stage.step("It follows.", follower, "election CANVASS -> FOLLOWER_")
    stage.step("It asks for what it misses.", follower, "(CatchupPosition|ReplicationRequest)", to=leader)
    stage.step("It gets it.", leader, "Log: SessionMessageHeader .*'two'", to=follower)
    stage.step("Its service gets the message, too.", service_of(follower), "onSessionMessage 'two'")
    stage.step("It takes part again.", follower, "election FOLLOWER_READY -> CLOSED")
