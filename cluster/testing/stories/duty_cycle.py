"""Time-outs that the duty cycle looks at."""

from __future__ import annotations

from cluster.testing.stories.stage import Stage, story

PAGE = "Duty cycle"


@story("inactive-follower-quorum", "A leader that hears no majority", page=PAGE)
def inactive_follower_quorum(stage: Stage) -> None:
    cluster = stage.cluster()
    leader = cluster.await_leader()
    cluster.run(1)
    stage.begin()
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
    cluster = stage.cluster()
    leader = cluster.await_leader()
    cluster.run(1)
    stage.begin()
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
    cluster = stage.cluster()
    alice = cluster.connect("alice")
    cluster.settle()
    leader = cluster.await_leader()
    stage.begin()
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
