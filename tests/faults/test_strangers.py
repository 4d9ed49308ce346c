"""What strangers cost a client that is there already: at most a fifth of its throughput, at any port.

Windows with a stranger at work and windows without alternate in one run, and each is compared with its two
neighbours, so that what else the machine does falls on both. The stranger is a process of its own that acts
so many times a second. A real one has its own machine: what this one takes of the processors is not the
member's fault, and what is left is compared with what those would give without it.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Self

import pytest

from benchmarks.real_members import ROOT, RealMembers
from cluster import ClusterClient, CredentialsSupplier, PasswordCredentials, TokenCredentials
from cluster.security.principals import password_digest, put, token_digest
from cluster.transport.tls import TLS_VARIABLES, TlsFiles
from tests.transport.authorities import Certificates

pytestmark = pytest.mark.faults

SHARE_MIN = 0.8
WINDOW_S = 0.4
PAIRS = 7
ROUNDS = 8  # as many as it takes, for on a busy machine a few windows say little
BATCH = [b"x" * 10] * 50  # short: a few seconds of all that a client can send are gigabytes of log
KEYS = {"service_responder": False, "file_sync_level": 0}

TCP, GRPC, MEMBERS = 1, 0, 2  # offsets of the ports
STRANGERS = [
    (TCP, "connections that are left", 50),
    (TCP, "garbage", 50),
    (TCP, "half a frame", 50),
    (TCP, "sessions", 20),
    (TCP, "readers that read nothing", 20),
    (TCP, "readers that ask how it stands", 20),
    (TCP, "readers that say garbage", 50),
    (GRPC, "connections that are left", 50),
    (GRPC, "garbage", 50),
    (GRPC, "calls with garbage", 10),
    (GRPC, "calls with half a frame", 10),
    (GRPC, "calls that open sessions", 10),
    (GRPC, "calls that read nothing", 10),
    (GRPC, "calls that ask how it stands", 10),
    (MEMBERS, "connections that are left", 50),
    (MEMBERS, "garbage", 50),
    (MEMBERS, "half a member's frame", 50),
    (MEMBERS, "Hellos in the name of member {}", 50),
    (MEMBERS, "Hellos of nobody", 50),
]
STRANGERS_OF_TLS = [
    (TCP, "connections that are left", 50),
    (TCP, "garbage", 50),
    (TCP, "half a frame", 50),
    (TCP, "half a handshake", 50),
    (TCP, "handshakes that stop", 20),
    (TCP, "garbage after the handshake", 10),
    (TCP, "garbage through TLS", 10),
    (TCP, "half a frame through TLS", 10),
    (TCP, "sessions through TLS", 10),
    (TCP, "readers that read nothing through TLS", 10),
    (GRPC, "connections that are left", 50),
    (GRPC, "garbage", 50),
    (GRPC, "half a handshake", 50),
    (GRPC, "handshakes that stop", 20),
    (GRPC, "calls with garbage through TLS", 10),
    (GRPC, "calls with half a frame through TLS", 10),
    (GRPC, "calls that open sessions through TLS", 10),
    (GRPC, "calls that read nothing through TLS", 10),
    (GRPC, "calls that ask how it stands through TLS", 10),
    (MEMBERS, "connections that are left", 50),
    (MEMBERS, "garbage", 50),
    (MEMBERS, "half a handshake", 50),
    (MEMBERS, "handshakes that stop", 20),
]
GUESSERS = [
    ("token", "wrong tokens", 20),
    ("password", "wrong passwords", 10),
    ("password", "passwords of nobody", 10),
]
# What a process may take for strangers: bounds.py, and its own buffers.
GROWTH_MIB_MAX = 300
DESCRIPTORS_MAX = 1_200


@pytest.fixture
def run_members(tmp_path: Path) -> Iterator[Callable[..., RealMembers]]:
    """Starts members with these keys; what they have written goes with them."""
    with ExitStack() as running:

        def run(**keys: object) -> RealMembers:
            members = running.enter_context(RealMembers(tmp_path, keys={**KEYS, **keys}))
            running.callback(members.stop)
            members.start()
            return members

        yield run
    for folder in tmp_path.glob("member-[0-9]"):
        shutil.rmtree(folder)


class Taken(NamedTuple):
    """What a process has of the machine."""

    resident_mib: int
    descriptors: int

    @classmethod
    def by(cls, pid: int) -> Self:
        status = Path(f"/proc/{pid}/status").read_text()
        resident_kib = int(status.partition("VmRSS:")[2].split()[0])
        return cls(resident_kib // 1024, len(os.listdir(f"/proc/{pid}/fd")))


class Stranger:
    """The process of ``strangers.py``, doing nothing until it is told to."""

    def __init__(self, kind: str, address: str, times_a_second: float, **variables: str) -> None:
        self.acted = 0
        self.processor_s = 0.0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.strangers", kind, address, str(times_a_second)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | variables,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def tell(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()

    def work(self) -> None:
        self.tell("on")

    def rest(self) -> None:
        self.tell("off")
        assert self._process.stdout is not None
        acted, processor_s = self._process.stdout.readline().split()
        self.acted += int(acted)
        self.processor_s += float(processor_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def throughput(client: ClusterClient) -> float:
    """Messages a second that are acknowledged in one window of a client that sends as many as it can."""
    began, before = time.monotonic(), client.acknowledged
    while (now := time.monotonic()) < began + WINDOW_S:
        if client.offer_batch(BATCH) < 0:
            client.wait(0.001)
            client.poll_egress()
    return (client.acknowledged - before) / (now - began)


def shares_left(client: ClusterClient, stranger: Stranger) -> list[float]:
    """What is left of the throughput in each window with the stranger, beside those before and behind it."""
    alone = [throughput(client)]
    beside = []
    for _ in range(PAIRS):
        stranger.work()
        beside.append(throughput(client))
        stranger.rest()
        alone.append(throughput(client))
    return [2 * beside[n] / (alone[n] + alone[n + 1]) for n in range(PAIRS)]


def assert_harmless(
    members: RealMembers,
    kind: str,
    port: int,
    times_a_second: float,
    tls: TlsFiles | None = None,
    **options: object,
) -> None:
    """A client keeps its throughput, and the leader its bounds, while a stranger is at its port."""
    shares: list[float] = []
    endpoints = members.endpoints if port == GRPC else members.tcp
    leader = members.await_leader()
    pid = members.processes[leader].pid
    address = f"127.0.0.1:{members.ports[leader] + port}"
    kind = kind.format((leader + 1) % 3)
    trusted = {} if tls is None else {TLS_VARIABLES["ca"]: tls.ca}
    with (
        Stranger(kind, address, times_a_second, **trusted) as stranger,
        ClusterClient.connect(endpoints, tls=tls, **options) as client,
    ):
        throughput(client)
        before = Taken.by(pid)
        for _ in range(ROUNDS):
            shares += shares_left(client, stranger)
            taken = stranger.processor_s / (len(shares) * WINDOW_S * len(os.sched_getaffinity(0)))
            if (share := statistics.median(shares) / (1 - taken)) >= SHARE_MIN:
                break
        stranger.work()
        throughput(client)
        during = Taken.by(pid)
        stranger.rest()
        client.await_committed(60)
    worked_s = len(shares) * WINDOW_S
    told = (
        f"{share:.2f} is left; the stranger itself took {taken:.0%} of the processors; the leader had "
        f"{before} before it, {during} beside it"
    )
    print(told)

    assert stranger.acted >= worked_s * times_a_second / 2, "it hardly came to act: nothing is proven"
    assert share >= SHARE_MIN, told
    assert during.resident_mib - before.resident_mib <= GROWTH_MIB_MAX, told
    assert during.descriptors <= DESCRIPTORS_MAX, told
    assert members.leader() == leader, "no stranger ends a leadership"


@pytest.mark.parametrize(("port", "kind", "times_a_second"), STRANGERS)
def test_no_stranger_costs_a_client_more_than_a_fifth_of_its_throughput(
    run_members, port, kind, times_a_second
):
    assert_harmless(run_members(), kind, port, times_a_second)


@pytest.mark.parametrize(("port", "kind", "times_a_second"), STRANGERS_OF_TLS)
def test_nor_does_a_stranger_where_members_speak_tls(tmp_path, run_members, port, kind, times_a_second):
    certificates = Certificates(tmp_path)
    files = [certificates.member(member_id) for member_id in range(3)]
    keys = {"tls_ca": files[0].ca} | {
        f"tls_{name}": getattr(files[0], name).replace("member-0", "member-{member_id}")
        for name in ("certificate", "key")
    }
    assert_harmless(run_members(**keys), kind, port, times_a_second, tls=certificates.trust)


@pytest.mark.parametrize(("authenticator", "kind", "times_a_second"), GUESSERS)
def test_nor_does_who_guesses_secrets(tmp_path, run_members, authenticator, kind, times_a_second):
    secret, rights, known = (tmp_path / name for name in ("secret", "rights", "known"))
    secret.write_text("the secret")
    rights.write_text("alice: write\n")
    digest = {"token": token_digest, "password": password_digest}[authenticator](b"the secret")
    put(str(known), "alice", digest)
    members = run_members(
        authenticator=authenticator, authenticator_file=str(known), authorisation=str(rights)
    )
    shown: CredentialsSupplier = TokenCredentials(str(secret))
    if authenticator == "password":
        shown = PasswordCredentials("alice", str(secret))
    assert_harmless(members, kind, TCP, times_a_second, credentials=shown)


def test_where_descriptors_are_few_strangers_meet_their_bounds_and_the_log_gets_its_segments(members_of):
    """Else a leader that cannot open its next segment steps down."""
    members = members_of(keys={"log_term_length": "64k", "archive_segment_file_length": "64k"})
    for member_id in members.ids:
        members.prefix_of[member_id] = ["prlimit", "--nofile=256:256"]
    members.start()
    leader = members.await_leader()
    term_id = members.established()[leader].leadership_term_id
    port = members.ports[leader]
    with (
        ClusterClient.connect(members.tcp) as client,
        Stranger("readers that read nothing", f"127.0.0.1:{port + TCP}", 100) as readers,
        Stranger("connections that are left", f"127.0.0.1:{port + TCP}", 100) as clients,
        Stranger("connections that are left", f"127.0.0.1:{port + MEMBERS}", 100) as peers,
    ):
        strangers = [readers, clients, peers]
        for stranger in strangers:
            stranger.work()
        for _ in range(20):
            throughput(client)
        client.await_committed(60)
        for stranger in strangers:
            stranger.rest()
        segments = client.committed_position // (64 * 1024)

    assert all(stranger.acted > 200 for stranger in strangers)
    assert segments > 20
    assert members.leader() == leader
    assert members.established()[leader].leadership_term_id == term_id
    told = (members.member_dir(leader) / "node.log").read_text()
    assert "connections_max" in told and "greetings_max" in told
    members.stop()


def test_a_process_with_too_few_descriptors_is_refused_in_one_line(members_of):
    members = members_of(count=1)
    members.prefix_of[0] = ["prlimit", "--nofile=100:100"]
    with pytest.raises(AssertionError, match="did not start"):
        members.start()

    (line,) = (members.directory / "member-0.err").read_text().splitlines()
    assert "100 descriptors are allowed to this process (RLIMIT_NOFILE)" in line
    assert "raise the limit (ulimit -n)" in line
