"""Turns of a member, and time-outs that they look at."""

from cluster.testing.stories.stage import Stage, service_of, story

PAGE = "Duty cycle"

# Methods as Aeron calls them, and where they are here from the agent on.
TURN = {
    "DutyCycleStallTracker.measureAndUpdate": "_tracker.measure_and_update",
    "slowTickWork": "_slow_tick",
    "consensusAdapter.poll": "parts.links.poll",
    "consensusWork": "phase.do_work",
    "ingressAdapter.poll": "parts.clients.poll",
    "consensusModuleAdapter.poll": "parts.services.poll",
}
LEADER_TURN = TURN | {
    "timerService.poll": "replica.timers.poll",
    "pendingServiceMessageTracker.poll": "replica.trackers.0.poll",
    "updateLeaderPosition": "phase.leader.update",
}
FOLLOWER_TURN = TURN | {
    "logAdapter.poll": "parts.processing.process",
    "commitPosition.set": "parts.log.commit",
}
SLOW_TICK = {
    "markFile.updateActivityTimestamp": "_upkeep.show_life",
    "sendRedirects": "replica.sessions.send_redirects",
    "sendRejections": "replica.sessions.send_rejections",
    "processPendingBackupSessions": "parts.backups.process_pending",
    "nodeControlToggle": "parts.node_control.do_work",
}
LEADER_TICK = SLOW_TICK | {
    "checkClusterControlToggle": "phase._ports.control.do_work",
    "processPendingSessions": "replica.sessions.process_pending",
    "checkSessions": "replica.sessions.check_sessions",
    "checkQuorum": "phase.check_quorum",
}
FOLLOWER_TICK = SLOW_TICK | {"hasHeartbeatTimedOut": "phase.follower.is_leader_silent"}


@story("inactive-follower-quorum", "A leader that hears no majority", page=PAGE)
def inactive_follower_quorum(stage: Stage) -> None:
    cluster, leader, _ = stage.idle_cluster()
    for follower in range(3):
        if follower != leader:
            cluster.cut(follower, leader)
    cluster.run(15)
    stage.step(
        "Followers hear their leader, whose ears are closed: nothing of theirs arrives.",
        (leader + 1) % 3,
        "AppendPosition",
        to=leader,
    )
    stage.step(
        "Without an active quorum for 10 s, the leader enters an election.",
        leader,
        "enters an election: .*quorum",
    )


@story("leader-heartbeat-timeout", "A follower that hears no leader", page=PAGE)
def leader_heartbeat_timeout(stage: Stage) -> None:
    cluster, leader, _ = stage.idle_cluster()
    cluster.pause(leader)
    cluster.run(15)
    other = (leader + 1) % 3
    stage.step(
        "The leader's process stands still. After 10 s a follower enters an election.",
        other,
        "enters an election: leader heartbeat timeout",
    )
    stage.step("It canvasses.", other, "CanvassPosition")


@story("recording-stopped", "The recording of a leader's log is stopped from outside", page=PAGE)
def recording_stopped(stage: Stage) -> None:
    cluster, alice, leader, _ = stage.led_cluster()
    cluster.stop_recording(leader)
    cluster.run(1)
    alice.offer(b"hello")
    cluster.settle()
    new = cluster.await_leader()
    stage.step(
        "The slow tick finds it, and the leader enters an election.",
        leader,
        "enters an election: log recording stopped",
    )
    stage.never("Without a recording nothing is appended.", leader, "Log: SessionMessageHeader")
    stage.step("A member leads the next term.", new, "Log: NewLeadershipTermEvent")
    stage.step("The log goes on.", new, "Log: SessionMessageHeader .*'hello'")


@story("leader-turn", "One turn of a leader", page=PAGE)
def leader_turn(stage: Stage) -> None:
    cluster, alice, leader, follower = stage.led_cluster(b"timer")
    stage.watch_calls(leader, LEADER_TURN)
    alice.offer(b"publish")
    cluster.settle()
    cluster.run(0.02)
    stage.step("A client's message has come.", alice, "SessionMessageHeader", to=leader)
    stage.step("It goes into the Log.", leader, "Log: SessionMessageHeader", to=follower)
    stage.step("The service publishes a message.", service_of(leader), "SessionMessageHeader", to=leader)
    stage.step("The last thing in a turn is to take it.", leader, "consensusModuleAdapter.poll")
    stage.step("A turn begins: how long was it since the one before?", leader, "DutyCycleStallTracker")
    stage.step("It reads what the other members have sent,", leader, "consensusAdapter.poll")
    stage.step("and does the work of a leader.", leader, "consensusWork")
    stage.step("Timers that are due go into the Log first,", leader, "timerService.poll")
    stage.step("then messages of services,", leader, "pendingServiceMessageTracker.poll")
    stage.step("then what clients have sent.", leader, "ingressAdapter.poll")
    stage.step("The followers get it.", leader, "Log: SessionMessageHeader", to=follower)
    stage.step(
        "The commit position is worked out from what each has on its disk.", leader, "updateLeaderPosition"
    )
    stage.step("A later turn says how far the Log is committed.", leader, "CommitPosition", to=follower)


@story("follower-turn", "One turn of a follower", page=PAGE)
def follower_turn(stage: Stage) -> None:
    cluster, alice, leader, follower = stage.led_cluster()
    stage.watch_calls(follower, FOLLOWER_TURN)
    alice.offer(b"hello")
    cluster.settle()
    cluster.run(0.25)
    stage.step("The leader has sent an entry,", leader, "Log: SessionMessageHeader", to=follower)
    stage.step("which the follower reads.", follower, "consensusAdapter.poll")
    stage.step("In the same turn,", follower, "consensusWork")
    stage.step(
        "first, it says what it has on its disk: the leader waits for that.",
        follower,
        "AppendPosition",
        to=leader,
    )
    stage.step("The leader says how far the Log is committed.", leader, "CommitPosition", to=follower)
    stage.step("In a turn of the follower", follower, "consensusWork")
    stage.step("the module processes the Log so far,", follower, "logAdapter.poll")
    stage.step("lets its services do so, too,", follower, "commitPosition.set")
    stage.step("reads what clients have sent, who are to be redirected,", follower, "ingressAdapter.poll")
    stage.step("and takes what services have sent.", follower, "consensusModuleAdapter.poll")
    stage.step("The service reads the message.", service_of(follower), "onSessionMessage 'hello'")


@story("slow-tick", "What a member looks after every 10 ms", page=PAGE)
def slow_tick(stage: Stage) -> None:
    cluster, _, leader, follower = stage.led_cluster()
    stage.watch_calls(leader, LEADER_TICK | {"slowTickWork": "_slow_tick"})
    stage.watch_calls(follower, FOLLOWER_TICK | {"slowTickWork": "_slow_tick"})
    cluster.connect("bob", member=leader)
    cluster.settle()
    cluster.connect("carol", member=follower)
    cluster.settle()
    stage.step("A client asks the leader for a session.", "bob", "SessionConnectRequest", to=leader)
    stage.step("The leader's next slow tick:", leader, "slowTickWork")
    stage.step("it updates the time in its mark file,", leader, "markFile.updateActivityTimestamp")
    stage.step("sends redirects and rejections that are due,", leader, "sendRedirects")
    stage.step("looks at the toggle of the cluster,", leader, "checkClusterControlToggle")
    stage.step("opens sessions that were asked for,", leader, "processPendingSessions")
    stage.step("answers backups,", leader, "processPendingBackupSessions")
    stage.step("closes sessions that are silent for too long,", leader, "checkSessions")
    stage.step("sees whether a majority follows it,", leader, "checkQuorum")
    stage.step("and looks at the toggle of the node.", leader, "nodeControlToggle")
    stage.step("Another client asks a follower.", "carol", "SessionConnectRequest", to=follower)
    stage.step("The follower's slow tick begins the same:", follower, "slowTickWork")
    stage.step("the mark file,", follower, "markFile.updateActivityTimestamp")
    stage.step("the redirect,", follower, "sendRedirects")
    stage.step("which the client gets,", follower, "SessionEvent .*code=REDIRECT", to="carol")
    stage.step("backups.", follower, "processPendingBackupSessions")
    stage.step("Then it sees whether its leader is silent for too long.", follower, "hasHeartbeatTimedOut")
    stage.step("The toggle of the node is last here, too.", follower, "nodeControlToggle")


@story("stall", "A member that stands still counts it", page=PAGE)
def stall(stage: Stage) -> None:
    cluster, _, leader, follower = stage.led_cluster()
    stage.watch_calls(
        follower,
        {
            "Cluster max cycle time": "counters.max_cycle_time_ns.set",
            "Cluster work cycle time exceeded count": "counters.cycle_time_exceeded.get_and_add",
        },
    )
    cluster.pause(follower)
    cluster.run(2)
    cluster.resume(follower)
    cluster.run(1)
    stage.step(
        "A follower's process stands still for 2 s. Its leader goes on.",
        leader,
        "CommitPosition",
        to=follower,
    )
    stage.step(
        "It wakes: this gap is the longest between two turns so far,", follower, "Cluster max cycle time"
    )
    stage.step(
        "and one more that was longer than the threshold (cycle_threshold).",
        follower,
        "Cluster work cycle time exceeded count",
    )
    stage.step("It goes on following.", follower, "AppendPosition", to=leader)
