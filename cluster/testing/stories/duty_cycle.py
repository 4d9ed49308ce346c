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
