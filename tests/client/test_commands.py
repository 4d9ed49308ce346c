"""``cluster send`` and ``cluster bench`` as a shell sees them: output, errors, exit status."""

import contextlib
import io
import json
import os
import pty
import struct
import subprocess
import sys
import time

import pytest

from cluster.cli.bench import _choose, _Run
from cluster.cli.main import main
from tests.node.processes import COMMAND, DEADLINE_S, environment


@contextlib.contextmanager
def standard_input(data: bytes):
    read_fd, write_fd = os.pipe()
    os.write(write_fd, data)
    os.close(write_fd)
    before = sys.stdin
    sys.stdin = io.TextIOWrapper(os.fdopen(read_fd, "rb"))
    try:
        yield
    finally:
        sys.stdin.close()
        sys.stdin = before


def records(*payloads):
    return b"".join(struct.pack("<I", len(payload)) + payload for payload in payloads)


# -- send --


@pytest.mark.parametrize("medium", ["ipc", "tcp", "grpc"])
def test_lines_of_standard_input_are_sent_and_answers_printed_as_lines(leader, capfdbinary, medium):
    with standard_input(b"one\n\ntwo words\r\nlast without end"):
        assert main(["send", "--endpoints", leader.endpoints[medium], "--linger", "100"]) == 0

    assert leader.log == [b"one", b"", b"two words\r", b"last without end"]
    assert capfdbinary.readouterr() == (b"one\n\ntwo words\r\nlast without end\n", b"")


@pytest.mark.parametrize("options", [[], ["--no-wait"]])
def test_at_a_terminal_stand_the_answers_or_a_bar_and_never_one_within_the_other(leader, options):
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [*COMMAND, "send", "--endpoints", leader.endpoints["ipc"], "--linger", "100", *options],
        input=b"hello\n", stdout=theirs, stderr=theirs, timeout=DEADLINE_S, env=environment(),
    )  # fmt: skip
    os.close(theirs)
    shown = os.read(ours, 65536)
    os.close(ours)

    assert done.returncode == 0
    assert (b"sending" in shown) if options else (shown == b"hello\r\n"), shown


def test_a_file_is_sent_whole(leader, capfdbinary, tmp_path):
    lines = [b"line %d " % n + b"x" * (n % 300) for n in range(20_000)]
    (tmp_path / "lines.txt").write_bytes(b"\n".join(lines) + b"\n")

    assert main(["send", "--endpoints", leader.endpoints["ipc"], str(tmp_path / "lines.txt")]) == 0
    assert leader.log == lines
    assert capfdbinary.readouterr().out == b"\n".join(lines) + b"\n"


def test_records_are_sent_and_printed_behind_their_lengths(leader, capfdbinary):
    payloads = [b"", b"a\nb", bytes(range(256)), b"x" * 100_000]
    with standard_input(b""):
        pass
    path = os.path.join(os.path.dirname(leader.endpoints["ipc"].split(":", 1)[1]), "records")
    with open(path, "wb") as file:
        file.write(records(*payloads))

    assert main(["send", "--binary", "--linger", "100", "--endpoints", leader.endpoints["tcp"], path]) == 0
    assert leader.log == payloads
    assert capfdbinary.readouterr().out == records(*payloads)


def test_no_wait_prints_nothing_and_ends_when_all_is_committed(leader, capfdbinary):
    with standard_input(b"one\ntwo\n"):
        assert main(["send", "--no-wait", "--endpoints", leader.endpoints["ipc"]]) == 0

    assert leader.log == [b"one", b"two"]
    assert capfdbinary.readouterr() == (b"", b"")


def test_answers_are_waited_for_while_they_come(leader, capfdbinary):
    leader.answers = 3
    with standard_input(b"x\n" * 10):
        assert main(["send", "--linger", "100", "--endpoints", leader.endpoints["ipc"]]) == 0

    assert capfdbinary.readouterr().out == b"x\n" * 30


def test_an_answer_that_comes_within_the_linger_time_after_the_commit_is_printed(leader, capfdbinary):
    leader.answers_late_s = 0.2
    with standard_input(b"late\n"):
        assert main(["send", "--linger", "5000", "--endpoints", leader.endpoints["ipc"]]) == 0

    assert capfdbinary.readouterr().out == b"late\n"


def test_nothing_to_send_is_done_at_once(leader, capfdbinary):
    with standard_input(b""):
        assert main(["send", "--endpoints", leader.endpoints["ipc"], "--linger", "0"]) == 0
    assert capfdbinary.readouterr() == (b"", b"")


def test_what_is_not_committed_is_counted_and_ends_with_1(leader, capfdbinary):
    leader.committed_max = 1
    with standard_input(b"one\ntwo\nthree\n"):
        assert main(["send", "--timeout", "0.3", "--endpoints", leader.endpoints["ipc"]]) == 1

    error = capfdbinary.readouterr().err.decode()
    assert error == (
        "no message was committed for 0.3 s; 2 of 3 messages sent are not known to be committed\n"
    )


def test_a_session_that_the_cluster_ends_is_told_with_its_reason(leader, capfdbinary):
    leader.closes_after = 2
    leader.committed_max = 1
    with standard_input(b"one\ntwo\n"):
        assert main(["send", "--endpoints", leader.endpoints["ipc"]]) == 1
    assert b"SERVICE_ACTION" in capfdbinary.readouterr().err


@pytest.mark.parametrize(
    ("options", "data", "told"),
    [
        (
            [],
            b"ok\n" + b"x" * 199_969 + b"\n",
            "line 2 has 199969 bytes, the cluster's log takes messages of at",
        ),
        ([], b"ok\n" + b"x" * 500_000, "line 2 has"),
        (
            ["--binary"],
            records(b"ok") + struct.pack("<I", 1 << 31),
            "the record at byte 6 says it has 2147483648",
        ),
        (["--binary"], records(b"ok") + b"\x05\x00\x00\x00abc", "the record at byte 6 is cut off"),
        (["--binary"], records(b"ok") + b"\x05\x00", "the record at byte 6 is cut off"),
    ],
)
def test_input_that_cannot_be_sent_is_named(leader, capfdbinary, tmp_path, options, data, told):
    (tmp_path / "input").write_bytes(data)

    status = main(["send", *options, "--endpoints", leader.endpoints["ipc"], str(tmp_path / "input")])

    error = capfdbinary.readouterr().err.decode()
    assert status == 1
    assert told in error
    assert error.count("\n") == 1


def test_wrong_usage_ends_with_2_and_what_cannot_be_reached_with_1(capfdbinary, tmp_path):
    (tmp_path / "lines").write_bytes(b"x\n")
    path = str(tmp_path / "lines")

    assert main(["send"]) == 2
    assert main(["send", "--endpoints", "127.0.0.1", path]) == 2
    assert main(["send", "--endpoints", "0=a:1", "--linger", "-1", path]) == 2
    assert main(["send", "--endpoints", "0=tcp:127.0.0.1:1", "--timeout", "0.2", path]) == 1
    assert main(["send", "--endpoints", "0=tcp:127.0.0.1:1", str(tmp_path / "missing")]) == 1
    assert main(["send", "--endpoints", "0=tcp:127.0.0.1:1", str(tmp_path)]) == 1
    errors = capfdbinary.readouterr().err.decode().splitlines()
    assert len(errors) == 6
    assert "endpoint '127.0.0.1': expected host:port" in errors[1]
    assert "missing: No such file" in errors[4]
    assert errors[5] == f"{tmp_path}: Is a directory"


# -- bench --


@pytest.mark.parametrize("medium", ["ipc", "tcp", "grpc"])
def test_bench_counts_what_comes_back(leader, capfdbinary, medium):
    arguments = ["bench", "--endpoints", leader.endpoints[medium], "--duration", "0.3", "--warm-up", "0.1"]

    assert main([*arguments, "--size", "20", "--window", "64", "--batch", "8", "--json"]) == 0

    report = json.loads(capfdbinary.readouterr().out)
    assert report["transport"] == medium
    assert (report["size"], report["window"], report["batch"]) == (20, 64, 8)
    assert report["offered"] == report["committed"] == report["echoed"] == len(leader.log)
    assert 0 < report["messages"] <= report["echoed"]
    assert report["messagesPerSecond"] == pytest.approx(report["messages"] / report["durationS"], rel=0.01)
    latency = report["latencyUs"]
    assert 0 < latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["p99.9"] <= latency["max"]
    assert all(payload == b"x" * 20 for payload in leader.log)


def test_bench_with_a_window_of_one_measures_round_trips(leader, capfdbinary, tmp_path):
    histogram = tmp_path / "latency.hgrm"
    arguments = ["bench", "--endpoints", leader.endpoints["ipc"], "--duration", "0.3", "--warm-up", "0"]

    assert main([*arguments, "--window", "1", "--histogram", str(histogram)]) == 0

    out = capfdbinary.readouterr().out.decode()
    assert "messages/s of 100 bytes over ipc, window 1, batch 1" in out
    assert "latency us: p50" in out
    assert "Percentile" in histogram.read_text()


class AtOnce:
    """A client whose messages are committed and answered within their offer, for two seconds at most."""

    max_payload_length = 100
    is_closed = False

    def __init__(self):
        self.offered = self.acknowledged = 0
        self.ends_s = time.monotonic() + 2.0

    def offer(self, payload):
        if time.monotonic() > self.ends_s:
            return -1
        self.offered = self.acknowledged = self.offered + 1
        self.run.on_messages([payload])
        return self.offered

    offer_batch = None

    def wait(self, timeout_s):
        pass

    def poll_egress(self):
        pass


def test_bench_ends_in_time_though_answers_come_as_fast_as_it_offers():
    client = AtOnce()
    client.run = run = _Run(size=10, window=100, batch=1)

    result = run.measure(client, 0.0, 0.2)

    assert result["durationS"] < 1.0
    assert result["messages"] == client.offered == run.echoed


def test_bench_refuses_what_cannot_be_measured(leader, capfdbinary):
    endpoints = leader.endpoints["ipc"]
    assert main(["bench", "--endpoints", endpoints, "--window", "10", "--batch", "20"]) == 2
    assert main(["bench", "--endpoints", endpoints, "--size", "300000"]) == 2
    assert main(["bench", "--endpoints", f"{endpoints},1=127.0.0.1:1"]) == 2
    errors = capfdbinary.readouterr().err.decode().splitlines()
    assert "20: more than --window, 10" in errors[0]
    assert "--size 300000" in errors[1]
    assert "grpc and ipc are mixed" in errors[2]


def test_help_shows_an_endpoint_of_each_transport_and_the_keys(capfdbinary):
    assert main(["bench", "--help"]) == 0
    text = capfdbinary.readouterr().out.decode()
    for told in ("127.0.0.1:9000", "tcp:127.0.0.1:9001", "ipc:", "messagesPerSecond", "p99.9"):
        assert told in text


def test_bench_takes_consensus_endpoints_of_a_real_aeron_cluster_as_they_are():
    endpoints = "aeron:localhost:9003,localhost:9103"
    assert _choose(endpoints, None) == (endpoints, "aeron")
