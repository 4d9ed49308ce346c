"""What holds for all kernels: their constants, their signatures, their cache."""

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import config

import cluster.log
from cluster.log import column_kernels, follow, frames, session_table
from cluster.log.checksum import Checksum, compute
from cluster.log.kernel import SHARED_MODULES
from cluster.log.scan import last_message_end
from cluster.log.warm import KERNEL_MODULES
from cluster.protocol import enums, frame, sbe
from cluster.protocol.link import CommitAck
from cluster.protocol.log import (
    ClusterActionRequest,
    NewLeadershipTermEvent,
    SessionCloseEvent,
    SessionOpenEvent,
    TimerEvent,
)

FOLDER = Path(cluster.log.__file__).parent


def test_kernels_find_the_fields_of_headers_where_they_are_declared():
    places = {name: place for name, (_, place) in frame.DATA_FRAME_HEADER.fields.items()}
    assert places == {"frame_length": 0} | {name: vars(frame)[f"{name.upper()}_AT"] for name in [*places][1:]}
    places = [sbe.HEADER_DTYPE.fields[name][1] for name in ("template_id", "schema_id", "version")]
    assert places == [sbe.TEMPLATE_ID_AT, sbe.SCHEMA_ID_AT, sbe.SCHEMA_VERSION_AT]


def test_an_acknowledgement_that_a_kernel_writes_is_a_commit_ack():
    ack = CommitAck(1, 2, 3, 4).encode()
    assert int.from_bytes(ack[:8], "little") == frames.COMMIT_ACK_SBE_HEADER
    assert frames.HEADER_LENGTH + len(ack) == frames.COMMIT_ACK_FRAME_LENGTH


def test_names_in_columns_are_those_of_the_protocols_enumerations():
    assert [reason.name for reason in enums.CloseReason] == list(column_kernels.CLOSE_REASON_NAMES)
    assert [action.name for action in enums.ClusterAction] == list(column_kernels.ACTION_NAMES)
    assert [unit.name for unit in enums.ClusterTimeUnit] == list(column_kernels.TIME_UNIT_NAMES)
    entries = (TimerEvent, SessionOpenEvent, SessionCloseEvent, ClusterActionRequest, NewLeadershipTermEvent)
    assert [entry.TEMPLATE_ID for entry in entries] == [20, 21, 22, 23, 24], "the order of the entry types"


def test_the_fields_of_a_session_slot_lie_where_the_kernels_look():
    for name in session_table.SESSION_SLOT.names[:-1]:
        place = session_table.SESSION_SLOT.fields[name][1] // 8
        assert getattr(session_table, name.upper()) == place
    assert session_table.SESSION_SLOT.itemsize == 8 * follow.SLOT_WORDS


def test_a_session_message_of_the_smallest_mtu_holds_its_header_in_the_first_frame():
    with pytest.raises(AssertionError):
        frames.LogParams(64 * 1024, 32, 0, 0)
    assert frames.LogParams(64 * 1024, 64, 0, 0).message_length_max == 8192


def test_read_only_and_writable_arrays_are_one_signature():
    data = bytes(frame.frame(b"x", session_id=1, stream_id=100))
    assert last_message_end(np.frombuffer(data, np.uint8), 0, 64) == 64
    assert last_message_end(np.frombuffer(bytearray(data), np.uint8), 0, np.int32(64)) == 64


def imports_of(module: str) -> set[str]:
    """Modules of cluster/log and cluster/protocol that a module takes names from, but for numpy."""
    packages = "cluster.log", "cluster.protocol"
    found = set()
    for node in ast.walk(ast.parse((FOLDER / f"{module}.py").read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(packages):
            names = {f"{node.module}.{name.name}" for name in node.names}
            found |= names if node.module in packages else {node.module}
    return found - {"cluster.protocol.arrays"}


def test_the_cache_is_checked_by_every_module_that_kernels_share():
    """Else a kernel goes on with what another file said when it was compiled."""
    for module in KERNEL_MODULES:
        assert imports_of(module) <= set(SHARED_MODULES), module


def test_nothing_is_in_numbas_own_cache():
    assert not [path for path in FOLDER.parent.rglob("*.py") if "cache=True" in path.read_text()]


def test_a_kernel_from_the_cache_is_called_without_what_compiling_needs():
    """numba's tables of what can be compiled take 0.2 s of each process that loads them."""
    program = """
import sys
import numpy as np
from cluster.log.checksum import Checksum, compute
assert compute(Checksum.CRC_32C, np.frombuffer(b"123456789", np.uint8), 0, 9) & 0xFFFFFFFF == 0xE3069283
print([name for name in ("numba.cpython.unicode", "numba.np.linalg") if name in sys.modules])
"""
    environment = {**os.environ, "PYTHONPATH": str(FOLDER.parents[1])}
    compute(Checksum.CRC_32C, np.zeros(8, np.uint8), 0, 8)  # in the cache from here on
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_python_calls_nothing_that_is_compiled_at_its_first_call():
    """Compiling takes a second of a processor, while a member or a client is waited for."""
    found = set()
    for path in FOLDER.glob("*.py"):
        module = importlib.import_module(f"cluster.log.{path.stem}")
        for node in ast.walk(ast.parse(path.read_text())):
            # Of routines and kernels themselves all calls are compiled with them.
            if isinstance(node, ast.FunctionDef) and not hasattr(vars(module).get(node.name), "py_func"):
                called = {call.func.id for call in ast.walk(node) if is_call_by_name(call)}
                found |= {(node.name, name) for name in called if is_routine(vars(module).get(name))}
    assert not found


def is_call_by_name(node):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name)


def is_routine(function):
    """Not a kernel, which compiles nothing more once it is imported."""
    return getattr(function, "_can_compile", False)


def test_setting_up_compiles_every_kernel():
    with_kernels = {path.stem for path in FOLDER.glob("*.py") if "\n@kernel(" in path.read_text()}
    assert with_kernels <= set(KERNEL_MODULES)


if not config.DISABLE_JIT:  # else this is that run

    @pytest.mark.slow
    @pytest.mark.timeout(300)
    def test_the_kernels_pass_the_same_tests_as_plain_python():
        """Nothing hides in the compiler: plain Python checks the bounds of every load and store."""
        run = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-x",
                "-p",
                "no:cacheprovider",
                str(Path(__file__).parent),
            ],
            env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
            cwd=FOLDER.parent.parent,
            capture_output=True,
            text=True,
        )
        assert run.returncode == 0, run.stdout[-4000:]
