"""gRPC is loaded in one place, with the poller that takes no threads of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SERVE = """
import os
from concurrent.futures import ThreadPoolExecutor
{load}
server = grpc.server(ThreadPoolExecutor(1))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
channel = grpc.insecure_channel(f"127.0.0.1:{{port}}")
grpc.channel_ready_future(channel).result(30)
print("left", *sorted(name for name in os.environ if name in ("GRPC_EXPERIMENTS", "GRPC_VERBOSITY")))
"""
OURS = "from cluster.transport.grpc_core import grpc"


def served(load, **environment):
    """Both outputs of a process that loads gRPC so, listens and connects to itself."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GRPC_")}
    done = subprocess.run(
        [sys.executable, "-c", SERVE.format(load=load)],
        env=kept | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


TRACED = {"GRPC_TRACE": "tcp,event_engine_endpoint", "GRPC_VERBOSITY": "INFO"}


@pytest.mark.parametrize(
    ("load", "environment", "polls_itself"),
    [
        (OURS, {}, True),
        (OURS, {"GRPC_EXPERIMENTS": ""}, False),  # the user has said otherwise
        ("import grpc\n" + OURS, {}, False),  # or loaded it before
    ],
    ids=["ours", "chosen", "loaded before"],
)
def test_whoever_waits_for_a_call_looks_at_the_sockets_itself(load, environment, polls_itself):
    _, traced = served(load, **TRACED, **environment)

    assert ("tcp_posix.cc" in traced) == polls_itself
    assert ("posix_endpoint.cc" in traced) != polls_itself


def test_nothing_is_said_about_it_and_processes_started_later_decide_for_themselves():
    said, errors = served(OURS)

    assert (said.strip(), errors) == ("left", ""), "an experiment that gRPC does not know is an error there"


def test_gRPC_is_loaded_nowhere_else():
    loads = re.compile(r"^\s*(import grpc\b|from grpc\b)", re.MULTILINE)
    found = [
        str(path.relative_to(ROOT))
        for folder in ("cluster", "spark_connector", "jobs")
        for path in (ROOT / folder).rglob("*.py")
        if loads.search(path.read_text())
    ]

    assert found == ["cluster/transport/grpc_core.py"]
