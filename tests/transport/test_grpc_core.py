"""gRPC is loaded in one place, where its settings are made."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_gRPC_is_loaded_nowhere_else():
    loads = re.compile(r"^\s*(import grpc\b|from grpc\b)", re.MULTILINE)
    found = [
        str(path.relative_to(ROOT))
        for folder in ("cluster", "spark_connector", "jobs")
        for path in (ROOT / folder).rglob("*.py")
        if loads.search(path.read_text())
    ]

    assert found == ["cluster/transport/grpc_core.py"]
