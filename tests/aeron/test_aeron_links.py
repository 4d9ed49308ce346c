"""Links to members of Java's by a scripted media driver: what is sent, what is heard, how their log comes."""

from __future__ import annotations

import contextlib
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from cluster.aeron import leader_log
from cluster.aeron.leader_log import RETRY_NS
from cluster.errors import MediaDriverError, RemoteProtocolError, TimedOut
from cluster.media.client_conductor import ChannelRefused
from cluster.protocol import backup, consensus, link, streams
from cluster.protocol.enums import Offer
from cluster.protocol.frame import frame
from cluster.transport.message_frames import link_frame, message_frame
from tests.aeron.scripted_aeron import Clock
from tests.aeron.scripted_links import (
    CANVASS,
    LEADER,
    LIVE,
    LOG_RUN,
    OURS,
    SESSION,
    SHAPE,
    TERM,
    TOLD,
    Driver,
    LogImage,
    Member,
)
from tests.node.processes import await_that


@pytest.fixture
def member(monkeypatch: pytest.MonkeyPatch) -> Member:
    found = Member(monkeypatch)
    found.poll()
    return found


def test_messages_of_consensus_go_out_and_those_of_our_members_alone_do_not(member):
    statement = link_frame(link.ClockRequest(1))
    assert member.links.send(0, statement + message_frame(CANVASS, streams.CONSENSUS)) > 0
    assert member.sent_to(0) == [CANVASS]
    assert member.sent_to(LEADER) == []
    channel = member.driver.subscriptions[streams.CONSENSUS].channel
    assert channel == "aeron:udp?term-length=64k|endpoint=inside:22"


def test_a_link_is_up_while_the_publication_to_the_member_is_acknowledged(member):
    assert member.heard == [("up", 0, 4), ("up", 1, 4)]
    assert not member.links.is_stable(0)
    member.now_ns = 2_000_000_000
    assert member.links.is_stable(0)
    for publication in member.driver.publications.values():
        publication.is_connected = "h:12" not in publication.channel
    assert member.poll() == [("down", LEADER)]
    assert member.links.send(LEADER, message_frame(CANVASS, streams.CONSENSUS)) == Offer.NOT_CONNECTED
    assert (member.links.is_up(0), member.links.is_up(LEADER)) == (True, False)


def test_what_a_publication_does_not_take_is_not_sent(member):
    for publication in member.driver.publications.values():
        publication.takes = False
    assert member.links.send(0, message_frame(CANVASS, streams.CONSENSUS)) == Offer.BACK_PRESSURED


def test_a_driver_that_ends_takes_all_links_down_and_is_looked_for_again(member):
    member.driver.failure = MediaDriverError("the media driver was stopped")
    member.is_running = False
    assert member.poll(3) == [("down", 0), ("down", 1)]
    member.driver, member.is_running = Driver(), True
    assert member.poll(3) == []
    member.now_ns += RETRY_NS
    assert member.poll(2) == [("up", 0, 4), ("up", 1, 4)]
    assert member.errors == ["the media driver was stopped"]


def test_a_member_starts_without_a_driver(monkeypatch):
    member = Member(monkeypatch, is_running=False)
    assert member.errors == ["no media driver runs"]
    member.is_running = True
    member.now_ns += RETRY_NS
    assert member.poll(2) == [("up", 0, 4), ("up", 1, 4)]


def test_a_member_whose_name_is_not_known_yet_is_asked_for_again(monkeypatch):
    member = Member(monkeypatch)
    member.driver.failure = MediaDriverError("stopped")
    member.poll()
    member.driver = Driver()
    member.driver.refused = "h:02"
    member.now_ns += RETRY_NS
    assert member.poll(2)[-1] == ("up", 1, 4)
    member.driver.refused = "nothing"
    member.now_ns += RETRY_NS
    assert member.poll(2) == [("up", 0, 4)]


def test_a_message_is_of_whom_its_publication_has_named(member):
    commit = consensus.CommitPosition(TERM, 64, LEADER)
    stop = consensus.StopCatchup(TERM, OURS)
    query = backup.BackupQuery(1, 2, 3)
    assert member.hears(stop) == [], "whose it is nobody knows"
    assert member.hears(query, commit, stop, session_id=12) == [(LEADER, commit), (LEADER, stop)]
    assert member.hears(consensus.CommitPosition(TERM, 64, 9), session_id=13) == []


def test_a_publication_without_frames_is_read_no_further_and_disturbs_nobody(member):
    member.image_from(12).is_damaged = True
    assert member.hears(TOLD) == [(LEADER, TOLD)]
    assert member.poll(2) == []
    assert member.errors == ["an image has no frame there"]


def test_the_live_log_comes_by_a_subscription_of_its_session_at_the_own_log_endpoint(member):
    member.hears(TOLD)
    member.wishes(LIVE)
    member.poll(3)
    channel = "aeron:udp?control-mode=manual|session-id=77|group=true|rejoin=false|alias=log"
    assert member.driver.subscriptions[streams.LOG].channel == channel
    assert member.driver.destinations == ["aeron:udp?endpoint=inside:23"]
    image = member.log_arrives()
    image.gives(LOG_RUN)
    assert member.poll(2) == [
        (LEADER, SHAPE),
        (LEADER, link.LogImage(5, TERM, 64, SESSION)),
        (LEADER, b"entry"),
    ]


def test_padding_that_is_longer_than_a_run_of_the_log_is_taken_all_the_same(member, monkeypatch):
    monkeypatch.setattr(leader_log, "RUN_BYTES", 256)
    member.hears(TOLD)
    member.wishes(LIVE)
    member.poll(2)
    image = member.log_arrives()
    image.gives(LOG_RUN)
    image.gives(frame(bytes(1000), session_id=SESSION, stream_id=streams.LOG))
    assert member.poll(4)[-2:] == [(LEADER, b"entry"), (LEADER, bytes(1000))]


@pytest.mark.parametrize("is_end_of_stream", [True, False])
def test_the_end_of_the_log_is_an_end_of_stream_or_a_broken_link(member, is_end_of_stream):
    member.hears(TOLD)
    member.wishes(LIVE)
    member.poll(2)
    image = member.log_arrives()
    image.gives(LOG_RUN)
    member.poll()
    image.is_closed, image.is_end_of_stream = True, is_end_of_stream
    read, end, *more = member.poll(3)
    assert read == (LEADER, b"entry")
    if is_end_of_stream:
        assert end == (LEADER, link.EndOfStream(5, 64, link.LinkErrorCode.OK))
    else:
        assert [end, *more] == [("down", LEADER), ("up", LEADER, 4)]


def test_a_catch_up_begins_at_its_own_endpoint_and_ends_at_that_of_the_log(member):
    member.hears(TOLD)
    wish = consensus.CatchupPosition(TERM, 64, OURS)
    assert member.links.send(LEADER, message_frame(wish, streams.CONSENSUS)) > 0
    assert member.sent_to(LEADER) == [wish.replace(catchup_endpoint="h:24")]
    member.poll(2)
    assert member.driver.destinations == ["aeron:udp?endpoint=inside:24"]
    image = member.log_arrives()
    assert member.poll(2) == [(LEADER, SHAPE), (LEADER, link.LogImage(64, TERM, 64, SESSION))]
    assert len(member.driver.destinations) == 1, "a quarter of a term or more is missing"
    image.position = 65_536 - 16_384
    member.poll(2)
    assert member.driver.destinations[1:] == ["aeron:udp?endpoint=inside:23"]
    member.hears(TOLD, consensus.StopCatchup(TERM, 0))
    assert len(member.driver.destinations) == 2, "that was meant for another one"
    member.hears(TOLD, consensus.StopCatchup(TERM, OURS))
    assert member.driver.destinations == ["aeron:udp?endpoint=inside:23"]


def test_a_catch_up_that_is_stopped_far_from_the_end_it_knew_joins_the_live_log_first(member):
    member.hears(TOLD)
    wish = consensus.CatchupPosition(TERM, 64, OURS)
    member.links.send(LEADER, message_frame(wish, streams.CONSENSUS))
    member.poll(2)
    member.log_arrives()
    member.hears(TOLD, consensus.StopCatchup(TERM, OURS))
    assert member.driver.destinations == ["aeron:udp?endpoint=inside:23"]


def test_a_subscription_waits_until_the_sockets_of_the_one_before_are_closed(member):
    member.hears(TOLD)
    member.wishes(LIVE)
    member.poll(2)
    first = member.driver.subscriptions[streams.LOG]
    member.wishes(LIVE)
    member.poll(3)
    assert member.driver.subscriptions[streams.LOG] is first
    member.driver.sockets.clear()
    member.poll()
    assert member.driver.subscriptions[streams.LOG] is not first


def test_an_endpoint_at_which_another_client_listens_still_is_tried_again(member):
    """One that was killed does until the driver misses it."""
    member.hears(TOLD)
    member.driver.refused = "inside:23"
    member.wishes(LIVE)
    assert member.poll(5) == [], "the link is as it was"
    assert member.errors == ["the media driver refused: Address already in use"]
    member.driver.refused = "nothing"
    member.now_ns += RETRY_NS
    member.poll()
    assert member.driver.destinations == ["aeron:udp?endpoint=inside:23"]


def test_a_subscription_that_the_driver_refuses_is_asked_for_again(member):
    member.driver.refused = "control-mode=manual"
    member.hears(TOLD)
    member.wishes(LIVE)
    member.poll(3)
    first = member.driver.subscriptions[streams.LOG]
    assert member.errors == ["no space"] and member.driver.destinations == []
    member.driver.refused = "nothing"
    member.poll(3)
    assert member.driver.subscriptions[streams.LOG] is first
    member.now_ns += RETRY_NS
    member.poll(3)
    assert member.driver.subscriptions[streams.LOG] is not first
    assert member.driver.destinations == ["aeron:udp?endpoint=inside:23"]


def test_a_replay_that_sends_nothing_for_long_is_over(monkeypatch):
    """Its thread looks between two runs alone whether anybody waits for it."""
    clock = Clock()
    monkeypatch.setattr(leader_log, "monotonic_ns", lambda: clock.now_ns)
    monkeypatch.setattr(leader_log, "pause", clock.wait)
    image = LogImage(SESSION)
    runs = replay_of(monkeypatch, image)
    assert next(runs) == SHAPE
    image.gives(frame(bytes(96), session_id=SESSION, stream_id=streams.LOG))
    assert len(next(runs)) == 128
    began_ns = clock.now_ns
    with pytest.raises(TimedOut, match="archive h:15 sends no more of a replay at 64"):
        next(runs)
    assert leader_log.SILENCE_NS < clock.now_ns - began_ns < 1.1 * leader_log.SILENCE_NS


def test_who_canvasses_follows_no_log(member):
    member.hears(TOLD)
    member.wishes(LIVE)
    member.poll(2)
    member.log_arrives()
    member.links.send(0, message_frame(CANVASS, streams.CONSENSUS))
    assert member.driver.destinations == []
    assert member.poll(2) == []


def replay_of(monkeypatch, image):
    """Of a leader's archive, by ReplicatedLog's thread."""
    image.is_over = False
    archive = SimpleNamespace(
        recording=lambda _: SimpleNamespace(initial_term_id=7, term_buffer_length=65_536, mtu_length=1408),
        replay=lambda *_: image,
    )
    for name, found in (("Aeron", None), ("AeronArchive", archive)):
        opened = contextlib.nullcontext(found)
        monkeypatch.setattr(leader_log, name, SimpleNamespace(connect=lambda *_, opened=opened: opened))
    return leader_log._replay("/driver", "h:15", 9, 0, 1 << 20)


def test_padding_of_closed_terms_is_longer_than_a_run(monkeypatch):
    monkeypatch.setattr(leader_log, "RUN_BYTES", 256)
    image = LogImage(SESSION)
    image.gives(frame(bytes(1000), session_id=SESSION, stream_id=streams.LOG))
    runs = replay_of(monkeypatch, image)
    assert next(runs) == SHAPE
    assert len(next(runs)) == 1056


def test_closed_terms_come_from_the_leaders_archive(member, monkeypatch):
    asked = []

    def replay(*arguments):
        asked.append(arguments)
        yield SHAPE
        yield np.frombuffer(LOG_RUN, np.uint8)
        raise RemoteProtocolError("the archive has ended")

    monkeypatch.setattr(leader_log, "_replay", replay)
    member.hears(TOLD)
    before = len(member.heard)
    member.wishes(link.ReplicationRequest(6, TERM, 64, 128))
    await_that(lambda: member.poll() and member.errors, "the archive's end")
    assert asked == [("/driver", "h:15", 9, 64, 128)]
    heard = member.heard[before:]
    assert heard[:3] == [
        (LEADER, SHAPE),
        (LEADER, link.LogImage(6, TERM, 64, SESSION)),
        (LEADER, b"entry"),
    ]
    assert ("down", LEADER) in heard
    assert member.errors == ["the archive has ended"]


def test_an_archive_whose_name_is_not_known_breaks_the_link_at_once(member, monkeypatch):
    """Its thread has ended, so nothing would come."""

    def replay(*arguments):
        raise ChannelRefused("h:15 is not reached from this host")
        yield

    monkeypatch.setattr(leader_log, "_replay", replay)
    member.hears(TOLD)
    member.wishes(link.ReplicationRequest(6, TERM, 64, 128))
    await_that(lambda: member.poll() and member.errors, "the refusal")
    member.poll()
    assert member.heard[-2:] == [("down", LEADER), ("up", LEADER, 4)]
    assert member.errors == ["h:15 is not reached from this host"]


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_replay_of_closed_terms_ends_with_the_links_and_with_their_driver(member, monkeypatch, is_lost):
    has_ended = threading.Event()

    def replay(*arguments):
        try:
            yield SHAPE
            while True:
                yield np.frombuffer(LOG_RUN, np.uint8)
        finally:
            has_ended.set()  # here it gives back its client of the driver

    monkeypatch.setattr(leader_log, "_replay", replay)
    member.hears(TOLD)
    member.wishes(link.ReplicationRequest(6, TERM, 64, 128))
    await_that(member.poll, "the log")
    if is_lost:
        member.driver.failure = MediaDriverError("the media driver was stopped")
        member.poll()
    else:
        member.links.close()
    assert has_ended.wait(10)
    assert member.errors == ["the media driver was stopped"] * is_lost


def test_a_log_that_the_lost_driver_does_not_take_back_is_followed_no_more(member, monkeypatch):
    def refuse(*_):
        raise MediaDriverError("the media driver takes no commands: its ring is full")

    member.hears(TOLD)
    member.wishes(LIVE)
    member.poll(3)
    member.log_arrives().gives(LOG_RUN)
    monkeypatch.setattr(member.driver, "remove_destination", refuse)
    member.driver.failure = MediaDriverError("the media driver was stopped")
    assert member.poll() == [("down", 0), ("down", 1)]
    member.driver = Driver()
    member.now_ns += RETRY_NS
    assert member.poll(3) == [("up", 0, 4), ("up", 1, 4)], "and no log"
    assert member.errors == ["the media driver was stopped"]
