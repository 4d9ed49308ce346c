"""A service in a process of its own: what its module sees of it, whenever and however often it dies."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from cluster import AgentTermination, ServiceError
from cluster.errors import LogDamaged
from cluster.member.busy import words as at
from cluster.member.services.service_table import LIMIT, LINK, UNREACHED
from cluster.protocol.enums import ClusterAction, Role
from cluster.protocol.service import ScheduleTimer
from cluster.service.channel import RecoveryState
from tests.node.service_in_memory import SECOND, Module, Numbering, led


class NumberingColumns(Numbering):
    """The same for messages in columns, with answers in columns."""

    def on_session_messages(self, batch: Any) -> None:
        for _ in range(len(batch)):
            self.number += 1
            if self.number % 3 == 0:
                self.cluster.offer(b"told %d" % self.number)
        self.cluster.offer_batch(batch.session_ids, batch.offsets, batch.lengths, batch.buffer)


@pytest.fixture
def a_module(tmp_path):
    made = []

    def make(service: str = "Numbering", name: str = "archive", *, is_compiled: bool = False) -> Module:
        (tmp_path / name).mkdir()
        made.append(Module(str(tmp_path / name), f"{__name__}:{service}", is_compiled=is_compiled))
        return made[-1]

    yield make
    for module in made:
        module.close()


@pytest.fixture
def leader(a_module):
    return led(a_module())


def history(module: Module, random: Random, kills: Random | None) -> Module:
    """Messages, elections and snapshots by one source of chance; when the service dies, by another."""
    led(module)
    for number in range(120):
        match random.randrange(12):
            case 0:
                module.close_log()
                module.join(random.choice((Role.LEADER, Role.FOLLOWER)))
                module.turn()  # a module processes no log before the join is acknowledged
                module.log.term()
            case 1:
                module.log.action(ClusterAction.SNAPSHOT)
                module.channel.awaited_snapshot = module.commit()
                module.settle()
            case _:
                for _ in range(random.randrange(1, 5)):
                    module.log.message(
                        7, b"m%d" % number + b"." * random.choice((0, 40, 3000)), timestamp=number
                    )
        module.commit()
        if kills is not None and kills.random() < 0.2 and module.process.frames_left is None:
            module.process.frames_left = kills.randrange(12)
        module.turn(random.randrange(4))
    module.process.frames_left = None
    return module.settle()


def results(module: Module) -> Any:
    acks = [(ack.log_position, ack.ack_id, ack.relevant_id >= 0) for ack in module.acks]
    return module.answers, module.sent, acks


@pytest.mark.parametrize("service", ["Numbering", "NumberingColumns"])
@pytest.mark.parametrize("seed", range(12))
def test_a_service_that_dies_at_any_time_does_everything_once(a_module, service, seed):
    whole = history(a_module(service, "whole"), Random(seed), None)
    killed = history(a_module(service, "killed"), Random(seed), Random(seed + 1000))
    assert whole.process.starts == 1
    assert killed.process.starts > 3, "the service did not die: this proves nothing"
    assert results(killed) == results(whole)
    assert len(whole.answers) > 20 and len(whole.sent) > 20 and len(whole.snapshots) > 1


@pytest.mark.parametrize("service", ["Numbering", "NumberingColumns"])
@pytest.mark.parametrize("seed", range(6))
def test_compiled_turns_do_the_same_for_it_whenever_it_dies(a_module, service, seed):
    whole = history(a_module(service, "whole"), Random(seed), None)
    lent = history(a_module(service, "lent", is_compiled=True), Random(seed), None)
    killed = history(a_module(service, "killed", is_compiled=True), Random(seed), Random(seed + 1000))
    assert results(lent) == results(killed) == results(whole)
    assert killed.process.starts > 3
    assert lent.lent.taken > 10, "Python took nearly all: this proves nothing"


@pytest.mark.parametrize(
    ("is_leader", "appended", "is_given"), [(True, 32, True), (False, 32, False), (False, 65_536, True)]
)
def test_a_follower_gives_its_service_the_log_of_5_ms_at_once(a_module, is_leader, appended, is_given):
    module = led(a_module(is_compiled=True))
    lent, position, now_ns = module.lent, module.commit_position, module.now_ns
    assert lent.turn(position + appended, now_ns, is_leader=is_leader)
    words = lent.tables.words
    assert module.remote.words[LIMIT] == position + appended * is_given
    assert words[at.LIMIT_DUE_NS] == (at.NEVER if is_given else now_ns + 5_000_000)


def test_compiled_turns_stand_for_it_as_long_as_its_log_goes_on(a_module):
    module = led(a_module(is_compiled=True))
    assert module.remote.lend()
    assert module.remote.words[LINK] == module.process.descriptor
    module.close_log()
    module.turn()
    assert not module.remote.lend() and module.remote.words[LINK] < 0


def test_the_next_process_starts_from_the_newest_snapshot(leader):
    for _ in range(5):
        leader.log.message(7, b"x")
    leader.log.action(ClusterAction.SNAPSHOT)
    leader.channel.awaited_snapshot = leader.commit()
    leader.settle()
    assert [position for position, _ in leader.snapshots] == [leader.commit_position]
    leader.process.kill(leader.remote)
    leader.settle()
    leader.log.message(7, b"y")
    leader.commit()
    leader.settle()
    assert leader.answers[-2:] == [(7, b"6 is y"), (7, b"6 again")]
    assert leader.process.starts == 2


def test_a_join_is_acknowledged_while_the_service_is_away_or_busy(leader):
    leader.process.is_stuck = True
    acked = len(leader.acks)
    leader.close_log()
    leader.join(Role.FOLLOWER)
    leader.turn()
    assert [ack.log_position for ack in leader.acks[acked:]] == [leader.commit_position]


def test_the_module_starts_joins_and_commits_while_its_service_does_not_come_up(a_module):
    module, prompt = a_module(), led(a_module(name="prompt"))
    module.process.is_stuck = True
    module.channel.recovery = RecoveryState()
    module.turn()
    assert module.acks == []
    module.now_ns += 11 * SECOND
    module.turn()
    module.join(Role.LEADER)
    module.log.term()
    module.log.opened(7)
    module.commit()
    module.turn(20)
    assert [ack.log_position for ack in module.acks] == [0, 0], "of the start, and of the join"
    for each in (module, prompt):
        each.log.message(7, b"x")
        each.commit()
        each.turn(20)
    assert module.answers == []
    module.process.is_stuck = False
    assert results(module.settle()) == results(prompt.settle())
    assert module.answers


def test_a_snapshot_waits_for_a_service_that_is_busy_and_not_for_ever(leader):
    leader.process.is_stuck = True
    leader.log.action(ClusterAction.SNAPSHOT)
    leader.channel.awaited_snapshot = leader.commit()
    acked = len(leader.acks)
    leader.turn(59, elapsed_ns=SECOND)
    assert len(leader.acks) == acked
    leader.turn(3, elapsed_ns=SECOND)
    assert [(ack.log_position, ack.relevant_id) for ack in leader.acks[acked:]] == [
        (leader.commit_position, -1)
    ]
    assert any("is not waited for" in line for line in leader.told)

    leader.process.is_stuck = False
    leader.log.message(7, b"later")
    leader.commit()
    leader.settle()
    assert len(leader.acks) == acked + 1, "its own ack comes too late, and is nobody's"
    assert leader.answers[-1] == (7, b"1 again")
    recordings = [recording.recording_id for recording in leader.archive.recordings()]
    assert recordings == [0], "nobody wants the snapshot either"


def test_an_election_in_the_middle_of_a_snapshot_keeps_the_order_of_the_acks(leader):
    leader.process.is_stuck = True
    leader.log.action(ClusterAction.SNAPSHOT)
    leader.channel.awaited_snapshot = leader.commit()
    leader.turn()
    acked = len(leader.acks)
    leader.close_log()
    leader.join(Role.FOLLOWER)
    leader.turn()
    assert len(leader.acks) == acked, "the join's must not come before the snapshot's"
    leader.process.is_stuck = False
    leader.settle()
    snapshot, join = leader.acks[acked:]
    assert snapshot.relevant_id >= 0 and join.relevant_id == -1


def test_an_end_waits_for_the_service_and_not_for_ever(leader):
    leader.process.is_stuck = True
    acked = len(leader.acks)
    leader.terminate()
    leader.turn(9, elapsed_ns=SECOND)
    assert len(leader.acks) == acked
    leader.turn(3, elapsed_ns=SECOND)
    assert [ack.log_position for ack in leader.acks[acked:]] == [leader.commit_position]
    assert leader.process.is_retired


def test_an_end_that_the_service_comes_to_is_acknowledged_by_it(leader):
    leader.log.message(7, b"last")
    leader.commit()
    acked = len(leader.acks)
    leader.terminate()
    leader.settle()
    assert len(leader.acks) == acked + 1
    assert leader.answers[-1] == (7, b"1 again")


def test_a_service_that_does_not_read_is_told_of_and_costs_no_memory(leader):
    leader.process.is_stuck = True
    for _ in range(100):
        leader.log.message(7, b"x")
        leader.commit()
        leader.turn()
    assert leader.remote.words[UNREACHED] <= 16
    leader.turn(10, elapsed_ns=SECOND)
    lags = [line for line in leader.told if line.startswith("warning: service 0 lags")]
    assert 2 <= len(lags) <= 5, "once a second, two, four, eight"
    leader.process.is_stuck = False
    leader.settle()
    assert leader.told[-1] == "service 0 has caught up"
    assert leader.channel.log_position == leader.commit_position


@pytest.mark.parametrize("is_compiled", [False, True])
def test_a_service_is_away_until_its_process_is_where_the_one_before_it_was(a_module, is_compiled):
    module = a_module(is_compiled=is_compiled)
    module.process.is_stuck = True
    module.channel.recovery = RecoveryState()
    module.turn()
    assert module.channel.is_away, "it has not come up"
    module.process.is_stuck = False
    assert not led(module).channel.is_away
    for _ in range(5):
        module.log.message(7, b"x")
    module.commit()
    assert not module.settle().channel.is_away

    module.process.kill(module.remote)
    module.process.is_stuck = True
    module.turn()
    assert module.channel.is_away
    module.process.is_stuck = False
    for _ in range(20):
        module.turn()
        assert module.channel.is_away is (module.remote._position < module.commit_position), "it replays"
    assert not module.channel.is_away


def test_a_service_that_starts_at_the_end_of_the_log_is_there(leader):
    leader.log.action(ClusterAction.SNAPSHOT)
    leader.channel.awaited_snapshot = leader.commit()
    leader.settle()
    leader.process.kill(leader.remote)
    leader.settle()
    assert leader.snapshots and leader.process.starts == 2
    assert not leader.channel.is_away


def test_a_service_that_stands_still_is_away_and_one_that_lags_or_has_nothing_to_read_is_not(leader):
    leader.turn(3, elapsed_ns=5 * SECOND)
    assert not leader.channel.is_away, "it has read all"
    leader.process.is_stuck = True
    leader.log.message(7, b"x")
    leader.commit()
    leader.turn()
    assert not leader.channel.is_away
    for _ in range(4):
        leader.turn(3, elapsed_ns=SECOND // 4)
        leader.remote._position += 1  # it goes on, slowly
        leader.turn()
        assert not leader.channel.is_away
        assert leader.gauges.stands_ns == 0
    leader.turn(5, elapsed_ns=SECOND // 4)
    assert leader.channel.is_away
    assert leader.gauges.stands_ns == 5 * SECOND // 4
    leader.process.is_stuck = False
    assert not leader.settle().channel.is_away
    assert leader.gauges.stands_ns == 0


@pytest.mark.parametrize("is_connected", [False, True])
def test_a_service_that_does_not_come_up_stands_still_once_its_member_waits_no_longer(a_module, is_connected):
    """With no log to read, too; a start that takes some seconds is none of it."""
    module = a_module()
    module.process.is_stuck, module.process.is_retired = is_connected, not is_connected
    module.channel.recovery = RecoveryState()
    module.turn()
    for _ in range(9):
        module.turn(elapsed_ns=SECOND)
        assert module.gauges.stands_ns == 0
    module.turn(elapsed_ns=SECOND)
    assert module.gauges.stands_ns == 10 * SECOND
    module.process.is_stuck = module.process.is_retired = False
    module.settle()
    assert module.gauges.stands_ns == 0


class StartsOnce(Numbering):
    starts = 0

    def on_start(self, cluster: Any, snapshot_image: Any) -> None:
        type(self).starts += 1
        if self.starts > 1:
            raise KeyError("nothing there")


def test_a_service_each_of_whose_starts_fails_stands_still_from_the_end_of_its_last_good_process(a_module):
    module = led(a_module("StartsOnce"))
    module.turn(elapsed_ns=3600 * SECOND)
    began_ns = module.now_ns
    while module.now_ns < began_ns + 9 * SECOND:
        module.process.kill(module.remote)
        module.turn(3)
        assert module.gauges.stands_ns == 0
        module.turn(elapsed_ns=SECOND)
    module.turn(elapsed_ns=SECOND)
    assert StartsOnce.starts == 10
    assert module.gauges.stands_ns == module.now_ns - began_ns


class Raising(Numbering):
    def on_session_message(self, session: Any, timestamp: int, buffer: memoryview) -> None:
        if bytes(buffer) == b"bad":
            raise ValueError("no good")
        super().on_session_message(session, timestamp, buffer)


def test_what_a_callback_raises_is_the_members_to_tell(a_module):
    module = led(a_module("Raising"))
    module.log.message(7, b"bad")
    module.log.message(7, b"good")
    module.commit()
    module.settle()
    [error] = module.errors
    assert isinstance(error, ServiceError)
    assert (error.callback, error.cluster_session_id, error.cause_name) == (
        "on_session_message",
        7,
        "ValueError",
    )
    assert f"({__file__}:" in str(error) and str(error).endswith(": no good")
    assert module.answers[-1] == (7, b"1 again")
    module.process.kill(module.remote)
    module.settle()
    assert len(module.errors) == 1, "the replay raises it again, which is no news"


class Broken(Numbering):
    def on_start(self, cluster: Any, snapshot_image: Any) -> None:
        raise KeyError("nothing there")


def test_a_mistake_in_the_container_ends_the_process_and_is_no_error_of_the_service(leader, monkeypatch):
    """The next process begins with the newest snapshot, so no entry is half taken."""
    leader.turn()
    monkeypatch.setattr(leader.process.host._agent.adapter, "poll", lambda position: {}["planted"])
    with pytest.raises(KeyError):
        leader.turn()
    assert leader.errors == []


class FailsAtItsEnd(Numbering):
    def on_terminate(self, cluster: Any) -> None:
        raise ValueError("not now")


def test_a_damaged_log_is_reported_by_a_service_whose_on_terminate_raises(a_module):
    module = led(a_module("FailsAtItsEnd"))
    module.process.host.end(LogDamaged("0-0.rec", 64, "a checksum is wrong"))
    with pytest.raises(LogDamaged, match=r"service 0: .*a checksum is wrong"):
        module.turn()
    [error] = module.errors
    assert isinstance(error, ServiceError) and error.callback == "on_terminate"


def test_a_service_that_cannot_start_ends_its_member_with_the_reason(a_module):
    with pytest.raises(
        AgentTermination, match=r"service 0 failed to start: 'nothing there' \(KeyError at .*:\d+"
    ):
        a_module("Broken").start()


def test_timers_are_asked_for_at_their_place_in_the_log(leader):
    for _ in range(4):
        leader.log.message(7, b"x", timestamp=100)
    leader.commit()
    leader.settle()
    assert [message for message in leader.sent if isinstance(message, ScheduleTimer)] == [
        ScheduleTimer(4, 110)
    ]
    assert leader.channel.settled_position == leader.commit_position
