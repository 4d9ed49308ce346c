"""The log that a member leads, to members of Java's by a scripted driver: live, and to who is behind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cluster.aeron.asked_publication import CONNECT_TIMEOUT_NS
from cluster.aeron.leader_log import RETRY_NS
from cluster.errors import MediaDriverError
from cluster.protocol import consensus, streams
from cluster.protocol.frame import frame
from tests.aeron.scripted_links import CANVASS, COMMAND_MAX, LEADER, OWN_SESSION, TERM, TERM_LENGTH, Member
from tests.aeron.scripted_media import ScriptedPublication


@pytest.fixture
def member(monkeypatch: pytest.MonkeyPatch) -> Member:
    found = Member(monkeypatch)
    found.poll()
    return found


class OwnLog:
    """A recording of frames of 64 bytes, whose first term is 7."""

    start_position, session_id, initial_term_id, term_length, mtu = 64, OWN_SESSION, 7, TERM_LENGTH, 1408

    def __init__(self, append_position: int) -> None:
        self.append_position = append_position

    def is_boundary(self, position: int) -> bool:
        return position % 64 == 0

    def frames(self, position: int, end: int) -> bytes:
        return b"".join(
            frame(b"%032d" % at, session_id=OWN_SESSION, stream_id=streams.LOG)
            for at in range(position, end, 64)
        )

    def read_published(self, position: int, max_length: int) -> np.ndarray:
        end = min(self.append_position, position + max_length - max_length % 64)
        return np.frombuffer(self.frames(position, end), np.uint8)


BASE = TERM_LENGTH + 640
PLACE = "init-term-id=7|term-id=8|term-offset={}|term-length=65536|mtu=1408|sparse=true"


def log_publications(member: Member) -> list[ScriptedPublication]:
    return [each for each in member.driver.publications.values() if each.stream_id == streams.LOG]


@pytest.fixture
def led(member: Member) -> Any:
    """Its log, which it leads from ``BASE`` on, and the publication."""
    log = OwnLog(BASE)
    member.links.publish(log)
    member.poll()
    return log, log_publications(member)[-1]


def test_a_leader_publishes_from_the_base_of_its_term_to_the_log_endpoints_of_all_others(member, led):
    log, publication = led
    fixed = "aeron:udp?control-mode=manual|fc=min|alias=log|session-id=-9|"
    assert publication.channel == fixed + PLACE.format(640)
    assert member.driver.sent_to == ["aeron:udp?endpoint=h:03", "aeron:udp?endpoint=h:13"]
    assert publication.recorded == b""
    log.append_position += 64 * 5
    publication.room = 64 * 2
    member.poll()
    assert publication.recorded == log.frames(BASE, BASE + 64 * 2)
    publication.room = 1 << 30
    log.append_position += 64
    member.poll(2)
    assert publication.recorded == log.frames(BASE, log.append_position)
    assert member.links.led_session_id == OWN_SESSION


def test_a_log_that_is_led_no_more_is_sent_to_its_end_and_given_back(member, led):
    log, publication = led
    log.append_position += 64
    member.links.publish(None)
    assert publication.recorded == log.frames(BASE, BASE + 64)
    assert member.driver.given_up == [publication]
    assert member.links.led_session_id is None
    log.append_position += 64
    member.poll()
    assert len(publication.recorded) == 64


def test_a_member_that_ends_sends_its_log_to_the_end(member, led):
    log, publication = led
    log.append_position += 64
    member.links.close()
    assert publication.recorded == log.frames(BASE, BASE + 64)


def test_an_endpoint_that_is_not_known_is_tried_again_and_keeps_the_log_from_nobody_else(monkeypatch):
    member = Member(monkeypatch)
    member.poll()
    member.driver.refused = "h:03"
    log = OwnLog(BASE)
    member.links.publish(log)
    member.poll()
    assert member.errors == ["unknown host"]
    member.driver.refused = "nothing"
    log.append_position += 64
    member.poll()
    assert len(log_publications(member)[-1].recorded) == 64
    assert member.driver.sent_to == ["aeron:udp?endpoint=h:13"]
    member.now_ns += RETRY_NS
    member.poll()
    assert member.driver.sent_to == ["aeron:udp?endpoint=h:13", "aeron:udp?endpoint=h:03"]


CATCHUP = consensus.CatchupPosition(TERM, BASE - 128, LEADER, "h:14")


def report(position: int, flags: int = 1) -> consensus.AppendPosition:
    return consensus.AppendPosition(TERM - 1, position, LEADER, flags)


def test_who_is_behind_gets_the_log_at_its_catch_up_endpoint_until_it_reports_all_of_it(member, led):
    log, live = led
    log.append_position += 64
    assert member.hears(CATCHUP) == [], "the member would send it over a link"
    catchup = log_publications(member)[-1]
    fixed = "aeron:udp?endpoint=h:14|linger=0|eos=false|alias=catch-up|session-id=-9|"
    assert catchup.channel == fixed + PLACE.format(512)
    assert catchup.recorded == log.frames(BASE - 128, BASE + 64)
    assert live.recorded == log.frames(BASE, BASE + 64)
    member.hears(report(BASE), report(BASE + 64, flags=0))
    assert member.sent_to(LEADER) == []
    assert member.hears(report(BASE + 64)) == [(LEADER, report(BASE + 64))]
    assert member.sent_to(LEADER) == [consensus.StopCatchup(TERM - 1, LEADER)], "in the term that it is in"
    assert member.driver.given_up == [catchup]


def test_stop_catchup_that_is_not_taken_is_said_with_the_next_report(member, led):
    member.hears(CATCHUP)
    for publication in member.driver.publications.values():
        publication.takes = False
    member.hears(report(BASE))
    assert member.driver.given_up == []
    for publication in member.driver.publications.values():
        publication.takes = True
    member.hears(report(BASE))
    assert member.sent_to(LEADER) == [consensus.StopCatchup(TERM - 1, LEADER)]


def test_a_catch_up_ends_when_its_follower_looks_for_a_leader_again_and_with_the_leader(member, led):
    member.hears(CATCHUP)
    first = log_publications(member)[-1]
    member.hears(CANVASS.replace(follower_member_id=LEADER))
    assert member.driver.given_up == [first]
    member.hears(CATCHUP)
    second = log_publications(member)[-1]
    member.links.publish(None)
    assert member.driver.given_up[1:] == [second, led[1]]


def test_who_does_not_listen_for_its_catch_up_is_given_up(member, led):
    member.driver.is_connecting = False
    member.hears(CATCHUP)
    catchup = log_publications(member)[-1]
    member.now_ns += CONNECT_TIMEOUT_NS + 1
    member.poll()
    assert (catchup.recorded, member.driver.given_up) == (b"", [catchup])
    assert "no connection established" in member.errors[0]


def test_a_catch_up_to_which_the_log_is_no_longer_there_ends(member, led):
    log, _ = led
    member.driver.is_connecting = False
    member.hears(CATCHUP)
    catchup = log_publications(member)[-1]
    log.start_position = BASE
    catchup.is_connected = True
    member.poll()
    assert (catchup.recorded, member.driver.given_up) == (b"", [catchup])
    assert "was purged" in member.errors[0]


def test_a_position_that_the_log_does_not_have_is_told_and_not_sent(member, led):
    for position in (0, BASE + 64, BASE - 32):
        member.hears(CATCHUP.replace(log_position=position))
    assert log_publications(member) == [led[1]]
    assert [
        f"from {position}, which is not here" in error
        for position, error in zip((0, BASE + 64, BASE - 32), member.errors, strict=True)
    ] == [True] * 3


def test_an_endpoint_that_no_command_takes_is_an_error_of_that_follower(member, led):
    member.hears(CATCHUP.replace(catchup_endpoint="h" * COMMAND_MAX))
    assert "a command of" in member.errors[0]
    assert log_publications(member) == [led[1]]


def test_who_leads_nothing_sends_no_log(member):
    assert member.hears(CATCHUP) == []
    assert log_publications(member) == []


def test_a_driver_that_ends_takes_the_leader_s_publication_with_it(member, led):
    member.driver.failure = MediaDriverError("the media driver was stopped")
    member.poll()
    assert member.links.led_session_id is None
