"""Who comes in at an archive: credentials with the request, and those that answer a challenge."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cluster.aeron import aeron_member
from cluster.aeron.aeron_member import AeronMember, ArchiveAccess
from cluster.errors import AuthenticationRejected, RemoteProtocolError, TimedOut
from cluster.media import aeron_archive
from cluster.media.aeron_archive import NOBODY, AeronArchive, ArchiveRefusal
from cluster.media.client_conductor import ChannelRefused
from cluster.protocol.archive_control import (
    ARCHIVE,
    ARCHIVE_CONTROL_VERSION,
    ArchiveChallenge,
    ArchiveChallengeResponse,
    AuthConnectRequest,
    ControlResponse,
    ControlResponseCode,
)
from cluster.protocol.sbe import decode_with
from cluster.protocol.versions import semantic_version
from cluster.transport.credentials import FixedCredentials

SESSION, REJECTED, NO_REPLAY = 8, 10, 6
OK, ERROR = ControlResponseCode.OK, ControlResponseCode.ERROR


class Archive:
    """Answers what it is sent; its driver's client, publications and subscriptions are this object, too."""

    def __init__(self, password: bytes, *, asks: bool, version: int = ARCHIVE_CONTROL_VERSION) -> None:
        self.version = version
        self.password = password
        self.asks = asks
        self.shown: list[bytes] = []
        self.channel = "aeron:udp?endpoint=here:1"
        self.subscription = None
        self.answers: list[bytes] = []
        self.correlation_id = 0
        self.conductor = SimpleNamespace(await_value=self.await_value, do_work=lambda: 0)

    def next_correlation_id(self) -> int:
        self.correlation_id += 1
        return self.correlation_id

    def add_exclusive_publication(self, channel: str, stream_id: int) -> Archive:
        return self

    def remove(self, *_: object) -> None:
        pass

    remove_publication = remove_subscription = remove

    def offer(self, data: bytes) -> int:
        request = decode_with({ARCHIVE.id: ARCHIVE}, data, 0, None)
        if isinstance(request, AuthConnectRequest | ArchiveChallengeResponse):
            self.shown.append(request.encoded_credentials)
            if self.asks and isinstance(request, AuthConnectRequest):
                answer: Any = ArchiveChallenge(SESSION, request.correlation_id, ARCHIVE_CONTROL_VERSION, b"?")
            elif request.encoded_credentials == self.password:
                answer = ControlResponse(SESSION, request.correlation_id, SESSION, OK, self.version)
            else:
                why = "authentication rejected"
                answer = ControlResponse(SESSION, request.correlation_id, REJECTED, ERROR, None, why)
            self.answers.append(answer.encode())
        return 1

    def poll(self) -> list[bytes]:
        answers, self.answers = self.answers, []
        return answers

    def close(self) -> None:
        pass

    def await_value(self, found: Any, timeout_s: float, what: str) -> Any:
        if value := found():
            return value
        raise TimedOut(what)


def connect(monkeypatch, archive: Archive, *credentials: Any) -> AeronArchive:
    monkeypatch.setattr(aeron_archive, "Answers", lambda *_: archive)
    return AeronArchive.connect(archive, "archive:8010", 1.0, *credentials)  # type: ignore[arg-type]


@pytest.mark.parametrize("module", [aeron_archive, aeron_member])
def test_what_was_made_for_one_that_is_refused_is_given_back(monkeypatch, module):
    """Members are asked again and again, and each time would leave sockets in the driver."""

    def refuse(*_: object) -> None:
        raise ChannelRefused("no space")

    made, closed = [], []
    answers = SimpleNamespace(close=lambda: closed.append("answers"))
    monkeypatch.setattr(module, "Answers", lambda *_: made.append("answers") or answers)
    aeron: Any = SimpleNamespace(add_exclusive_publication=refuse)
    with pytest.raises(ChannelRefused):
        if module is aeron_archive:
            AeronArchive.connect(aeron, "archive:8010")
        else:
            AeronMember(aeron, "member:9003", ArchiveAccess(NOBODY, 1.0))
    assert closed == made != []


@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.conformance("M-43")
def test_credentials_go_with_the_request_and_answer_a_challenge(monkeypatch, asks):
    archive = Archive(b"user:secret", asks=asks)
    assert connect(monkeypatch, archive, FixedCredentials(b"user:secret"))._session_id == SESSION
    assert archive.shown == [b"user:secret"] * (1 + asks)


@pytest.mark.conformance("M-43")
def test_an_archive_of_another_major_version_is_refused(monkeypatch):
    with pytest.raises(RemoteProtocolError, match=r"speaks version 2\.0\.0, expected 1\.x"):
        connect(monkeypatch, Archive(b"", asks=False, version=semantic_version(2, 0, 0)))


@pytest.mark.parametrize(
    ("asks", "credentials", "says"),
    [
        (False, (FixedCredentials(b"other"),), "refuses: authentication rejected"),
        (True, (FixedCredentials(b"other"),), "refuses: authentication rejected"),
        (False, (), "refuses: authentication rejected"),
        (True, (), "asks for credentials, and none are given"),
    ],
)
def test_who_shows_others_or_none_is_told_that_the_archive_rejects_them(monkeypatch, asks, credentials, says):
    with pytest.raises(AuthenticationRejected, match=f"archive archive:8010 {says}"):
        connect(monkeypatch, Archive(b"user:secret", asks=asks), *credentials)


def test_another_no_of_the_archive_is_none_to_who_comes(monkeypatch):
    archive = Archive(b"", asks=False)
    session = connect(monkeypatch, archive)
    archive.answers.append(ControlResponse(SESSION, 2, NO_REPLAY, ERROR, None, "no such replay").encode())
    with pytest.raises(ArchiveRefusal, match="no such replay"):
        session.recorded_position(0)
