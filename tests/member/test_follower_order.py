"""The order of a follower's turn: its leader waits for the report alone."""

from __future__ import annotations

from tests.member.cluster_steps import a_cluster


def test_a_follower_syncs_and_reports_before_it_looks_at_the_log(monkeypatch):
    cluster = a_cluster()
    agent, client = cluster.followers[0].agent, cluster.add_client()
    cluster.await_settled()
    calls = []
    for owner, name in (
        (agent.phase, "do_work"),
        (agent.parts.log.recording, "sync"),
        (agent.phase.follower, "on_append_position_sent"),
        (agent.parts.processing, "process"),
    ):
        call = getattr(owner, name)
        noted = lambda *given, call=call, name=name: calls.append(name) or call(*given)  # noqa: E731
        monkeypatch.setattr(owner, name, noted)
    both = "sync on_append_position_sent process"
    for _ in range(5_000):
        client.send(b"x")
        cluster.step()
        turns = [turn.strip() for turn in " ".join(calls).split("do_work")]
        if both in turns:
            break
        assert not any("process sync" in turn for turn in turns[-2:]), "in the order of the table"

    assert both in turns
