"""A leader that replays its log, and a follower that catches up."""

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


@story("leader-replay-from-zero", "A leader replays its log from the beginning", page=PAGE)
def leader_replay_from_zero(stage: Stage) -> None:
    cluster, alice, *_ = stage.led_cluster(b"one", b"two")
    alice.pause()
    stage.begin()
    leader = _restart(cluster)
    service = service_of(leader)
    stage.step("There is no snapshot: the service starts from nothing.", service, "onStart$")
    stage.step("A majority holds the leader's log.", leader, "election .* -> LEADER_REPLAY")
    stage.step("The service is asked to join the replay, as a follower.", leader, "JoinLog .*role=FOLLOWER")
    stage.step("It acknowledges that it has joined.", service, "ServiceAck logPosition=0", to=leader)
    stage.step("It gets the session back from the log.", service, "onSessionOpen")
    stage.step("Then the messages.", service, "onSessionMessage 'one'")
    stage.never("It answers nobody while it replays.", leader, "SessionMessageHeader")
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
    cluster, alice, leader, follower = stage.led_cluster(b"one")
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


def _restart_and_stall(stage: Stage, when: str) -> int:
    """All start again; the service of who leads stands still for half a second, from that moment on."""
    cluster, alice, *_ = stage.led_cluster(b"one")
    alice.pause()
    for member in range(3):
        cluster.kill(member)
    stage.begin()
    for member in range(3):
        cluster.start(member)
    leader = stage.await_first(when)
    cluster.stall_service(leader, 0.5)
    cluster.run(2)
    return leader


@story("join-log", "A replay waits for the service to join", page=PAGE)
def join_log(stage: Stage) -> None:
    leader = _restart_and_stall(stage, "election LEADER_LOG_REPLICATION -> LEADER_REPLAY")
    service, follower = service_of(leader), (leader + 1) % 3
    stage.step("The service is asked to join the replay.", leader, "JoinLog", to=service)
    stage.step(
        "It stands still. The leader goes on to publish its term, on an interval.",
        leader,
        "NewLeadershipTerm ",
        to=follower,
    )
    stage.step("It publishes the commit position, too.", leader, "CommitPosition", to=follower)
    stage.never("Nothing is processed meanwhile.", leader, "election LEADER_REPLAY -> LEADER_INIT")
    stage.step("Half a second later the service acknowledges.", service, "ServiceAck", to=leader)
    stage.step("It processes the log.", service, "onSessionMessage 'one'")
    stage.step("So does its module.", leader, "election LEADER_REPLAY -> LEADER_INIT")


@story("module-leaves-replay-first", "A service reads on when its module has replayed", page=PAGE)
def module_leaves_replay_first(stage: Stage) -> None:
    leader = _restart_and_stall(stage, "JoinLog")
    service = service_of(leader)
    stage.step("The service is asked to join the replay.", leader, "JoinLog .*role=FOLLOWER", to=service)
    stage.step("It has joined, and stands still then.", service, "ServiceAck", to=leader)
    stage.never("It has no entry yet.", service, "onSession")
    stage.step("The module has processed the log.", leader, "election LEADER_REPLAY -> LEADER_INIT")
    stage.step("The service follows in its own time.", service, "onSessionOpen")
    stage.step("It gets all messages.", service, "onSessionMessage 'one'")
    stage.step("Then it joins the log of the new term.", service, "ServiceAck logPosition=[1-9]", to=leader)
    stage.step("The election goes on.", leader, "election LEADER_INIT -> LEADER_READY")


@story("leader-replay-minority", "A leader replays while one member does not run", page=PAGE)
def leader_replay_minority(stage: Stage) -> None:
    cluster, alice, *_ = stage.led_cluster(b"one")
    alice.pause()
    for member in range(3):
        cluster.kill(member)
    stage.begin()
    for member in (0, 1):
        cluster.start(member)
    leader = cluster.await_leader()
    cluster.run(1)
    stage.step("Two of three members start. A majority is enough.", leader, "election CANVASS -> NOMINATE")
    stage.step("Both hold the leader's log, so it is committed.", leader, "election .* -> LEADER_REPLAY")
    stage.step("The service replays it.", service_of(leader), "onSessionMessage 'one'")
    stage.step("The leader goes on.", leader, "election LEADER_REPLAY -> LEADER_INIT")
