"""What is in the log: messages, timers, snapshots."""

from cluster.protocol.enums import ClusterControlToggle
from cluster.testing.stories.stage import Stage, service_of, story

PAGE = "Log messages"


@story("message", "A message, from ingress to commit to egress", page=PAGE)
def message(stage: Stage) -> None:
    cluster, alice, leader, follower = stage.led_cluster()
    alice.offer(b"hello")
    cluster.settle()
    stage.step("A client sends a message on the ingress.", alice, "SessionMessageHeader .*'hello'", to=leader)
    stage.step(
        "The leader appends it to the Log, which goes to the followers.",
        leader,
        "Log: SessionMessageHeader .*'hello'",
        to=follower,
    )
    stage.step("A follower says how far its Log is safe.", follower, "AppendPosition", to=leader)
    stage.step(
        "A majority has it: the leader's service gets the message.",
        service_of(leader),
        "onSessionMessage 'hello'",
    )
    stage.step("Its answer goes out on the egress.", leader, "SessionMessageHeader .*'1'", to=alice)
    stage.step("Followers hear how far the Log is committed.", leader, "CommitPosition", to=follower)
    stage.step(
        "Their services get the message, and answer nobody.",
        service_of(follower),
        "onSessionMessage 'hello'",
    )


@story("two-clients", "Two clients, one sequence", page=PAGE)
def two_clients(stage: Stage) -> None:
    cluster = stage.cluster()
    alice, bob = cluster.connect("alice"), cluster.connect("bob")
    cluster.settle()
    leader = cluster.await_leader()
    stage.begin()
    bob.offer(b"b")
    alice.offer(b"a")
    cluster.settle()
    order = [line.text[-3:] for line in cluster.happenings if line.text.startswith("onSessionMessage")][:2]
    first, second = order
    stage.step("One client sends.", alice, "SessionMessageHeader .*'a'", to=leader)
    stage.step("The leader puts the messages into one order.", leader, f"Log: SessionMessageHeader .*{first}")
    stage.step("This one comes second.", leader, f"Log: SessionMessageHeader .*{second}")
    got = [line.sender for line in cluster.happenings if line.text.startswith(f"onSessionMessage {first}")]
    for service in got:
        stage.step("Each service gets them in that order.", service, f"onSessionMessage {first}")
    stage.step("Nobody gets another order.", got[-1], f"onSessionMessage {second}")


@story("timer", "A timer is set, and fires once on every member", page=PAGE)
def timer(stage: Stage) -> None:
    cluster, alice, leader, follower = stage.led_cluster()
    alice.offer(b"timer")
    cluster.run(3)
    stage.step("A message has every service set a timer.", service_of(leader), "onSessionMessage 'timer'")
    stage.step("It asks its consensus module for it.", service_of(leader), "ScheduleTimer", to=leader)
    stage.step("A follower's service does the same.", service_of(follower), "ScheduleTimer", to=follower)
    stage.step("On the leader the timer expires. It appends a TimerEvent.", leader, "Log: TimerEvent")
    stage.step("The leader's service gets it when it is committed.", service_of(leader), "onTimerEvent")
    stage.step(
        "So does a follower's. The event cancels the follower's own timer.",
        service_of(follower),
        "onTimerEvent",
    )
    stage.never("It fires no second time.", service_of(follower), "onTimerEvent")
    stage.step("The client's session goes on.", alice, "SessionKeepAlive", to=leader)


@story("service-publishes", "A service publishes into the log", page=PAGE)
def service_publishes(stage: Stage) -> None:
    cluster, alice, leader, follower = stage.led_cluster()
    alice.offer(b"publish")
    cluster.settle()
    cluster.run(0.5)
    stage.step(
        "A service sends a message into the cluster.",
        service_of(leader),
        "SessionMessageHeader .*'from the service'",
        to=leader,
    )
    stage.step("The leader appends it to the Log.", leader, "Log: SessionMessageHeader .*'from the service'")
    stage.step(
        "Every service gets it from there.", service_of(follower), "onSessionMessage 'from the service'"
    )


@story("suspend-resume", "SUSPEND and RESUME", page=PAGE)
def suspend_resume(stage: Stage) -> None:
    cluster, alice, leader, follower = stage.led_cluster()
    cluster.set_toggle(ClusterControlToggle.SUSPEND)
    cluster.run(0.5)
    alice.offer(b"hello")
    cluster.run(1)
    cluster.set_toggle(ClusterControlToggle.RESUME)
    cluster.settle()
    stage.step("The leader finds the toggle set, and appends the action.", leader, "Log: .*action=SUSPEND")
    stage.step("A follower's module is suspended by it.", follower, "module ACTIVE -> SUSPENDED")
    stage.never("What a client sends is not appended meanwhile.", leader, "Log: SessionMessageHeader")
    stage.step("RESUME is appended.", leader, "Log: ClusterActionRequest .*action=RESUME")
    stage.step("Only now does the leader take the message.", leader, "Log: SessionMessageHeader .*'hello'")


@story("snapshot", "A snapshot, asked for by the toggle", page=PAGE)
def snapshot(stage: Stage) -> None:
    cluster, _, leader, follower = stage.led_cluster(b"one")
    cluster.take_snapshot()
    stage.step("The leader finds the toggle set, and appends the action.", leader, "Log: .*action=SNAPSHOT")
    stage.step("Its service takes a snapshot at that position.", service_of(leader), "onTakeSnapshot")
    stage.step("It acknowledges.", service_of(leader), "ServiceAck", to=leader)
    stage.step("A follower's service does so at the same position.", service_of(follower), "onTakeSnapshot")
    stage.step("It acknowledges, too.", service_of(follower), "ServiceAck", to=follower)


@story("shutdown", "SHUTDOWN: a snapshot, and an orderly end", page=PAGE)
def shutdown(stage: Stage) -> None:
    cluster, _, leader, follower = stage.led_cluster()
    cluster.set_toggle(ClusterControlToggle.SHUTDOWN)
    cluster.run(5)
    stage.step("Followers hear where to end.", leader, "TerminationPosition", to=follower)
    stage.step("The leader appends the snapshot that comes before the end.", leader, "Log: .*action=SNAPSHOT")
    stage.step("Services take it.", service_of(leader), "onTakeSnapshot")
    stage.step("They end.", service_of(leader), "onTerminate")
    stage.step("A follower has come there.", follower, "TerminationAck", to=leader)
    stage.step("The leader ends last.", leader, "ends in order")


@story("abort", "ABORT: an orderly end without a snapshot", page=PAGE)
def abort(stage: Stage) -> None:
    cluster, _, leader, follower = stage.led_cluster()
    cluster.set_toggle(ClusterControlToggle.ABORT)
    cluster.run(5)
    stage.step("Followers hear where to end.", leader, "TerminationPosition", to=follower)
    stage.never("No snapshot is taken.", service_of(leader), "onTakeSnapshot")
    stage.step("The leader's service ends there.", service_of(leader), "onTerminate")
    stage.step("A follower has come there.", follower, "TerminationAck", to=leader)
    stage.step("The leader ends last.", leader, "ends in order")


@story("standby-snapshot", "STANDBY_SNAPSHOT: the action is logged, and members take none", page=PAGE)
def standby_snapshot(stage: Stage) -> None:
    cluster, alice, leader, follower = stage.led_cluster()
    cluster.set_toggle(ClusterControlToggle.STANDBY_SNAPSHOT)
    cluster.run(1)
    alice.offer(b"hello")
    cluster.settle()
    stage.step("The leader appends the action.", leader, "Log: ClusterActionRequest .*action=SNAPSHOT")
    stage.never("It is for standbys: a member's service takes none.", service_of(follower), "onTakeSnapshot")
    stage.step("The log goes on.", service_of(follower), "onSessionMessage 'hello'")


@story("commit-gates-services", "A service reads no further than the log is committed", page=PAGE)
def commit_gates_services(stage: Stage) -> None:
    cluster, alice, leader, _ = stage.led_cluster()
    followers = [member for member in range(3) if member != leader]
    stage.begin()
    for follower in followers:
        cluster.cut(follower, leader)
    alice.offer(b"hello")
    cluster.run(2)
    cluster.heal()
    cluster.settle()
    one = followers[0]
    stage.step("The leader appends a message.", leader, "Log: SessionMessageHeader .*'hello'", to=one)
    stage.step("A follower has it, but the way back is cut.", one, "AppendPosition", to=leader)
    stage.never("The leader knows of no majority: its service waits.", service_of(leader), "onSessionMessage")
    stage.never("So does the follower's.", service_of(one), "onSessionMessage")
    stage.step(
        "The way is open again, and the log committed.", service_of(leader), "onSessionMessage 'hello'"
    )
    stage.step("The follower hears of it.", leader, "CommitPosition", to=one)
    stage.step("Its service reads on.", service_of(one), "onSessionMessage 'hello'")
