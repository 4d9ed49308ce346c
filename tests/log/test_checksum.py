"""Checksums as Aeron's archive stores them."""

import os
import random
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from numba import config

from cluster.log import crc
from cluster.log.append import append_message
from cluster.log.checksum import Checksum, compute, restore_session_ids, store_checksums, verify_checksums
from tests.log import logs, naive
from tests.log.logs import PARAMS, array, seeds
from tests.log.naive import session_message

BOTH = pytest.mark.parametrize("checksum", list(Checksum))


@pytest.mark.parametrize(
    ("checksum", "check"), [(Checksum.CRC_32, 0xCBF4_3926), (Checksum.CRC_32C, 0xE306_9283)]
)
def test_the_check_values_of_the_catalogue_of_crcs_come_out(checksum, check):
    assert compute(checksum, array(b"123456789"), 0, 9) & 0xFFFF_FFFF == check


@BOTH
@pytest.mark.parametrize("seed", seeds(10))
def test_a_checksum_is_that_of_the_slow_twin_for_any_range(checksum, seed):
    rng = random.Random(seed)
    data = rng.randbytes(200)
    for _ in range(30):
        offset = rng.randrange(200)
        length = rng.randrange(200 - offset + 1)
        piece = data[offset : offset + length]
        value = compute(checksum, array(data), offset, length)
        assert value == naive.crc(int(checksum), piece)
        if checksum is Checksum.CRC_32:
            assert value & 0xFFFF_FFFF == zlib.crc32(piece)


@pytest.mark.parametrize("length", [0, 7, 8, 383, 384, 385, 768, 1376, 65_472])
def test_instruction_and_tables_agree_over_ranges_of_any_number_of_blocks(length):
    data = random.Random(length).randbytes(length + 3)
    expected = naive.crc(int(Checksum.CRC_32C), data[3:])

    assert compute(Checksum.CRC_32C, array(data), 3, length) == expected
    by_tables = crc.extend_by_tables(0, crc.CRC_32C_TABLES, array(data), 3, 3 + length)
    assert by_tables == expected & 0xFFFF_FFFF


@pytest.mark.parametrize("length", [0, 15, 16, 127, 128, 129, 191, 192, 193, 320, 1376, 65_472])
def test_crc_32_goes_on_from_any_crc_by_multiplication_or_tables(length):
    data = random.Random(length).randbytes(length + 5)
    for before in (0, 1, 0x1234_5678, 0xFFFF_FFFF):
        expected = zlib.crc32(data[5:], before)
        assert crc.extend_crc_32(before, array(data), 5, 5 + length) == expected
        by_tables = crc.extend_by_tables(before, crc._CRC_32_TABLES, array(data), 5, 5 + length)
        assert by_tables == expected


HOW_IT_IS_COMPILED = """
import numpy as np
from cluster.log import checksum
check = checksum.compute(checksum.Checksum.CRC_32C, np.frombuffer(b"123456789", np.uint8), 0, 9)
(code,) = checksum._crc.inspect_asm().values()
has_instruction = "\\tcrc32" in code
print(f"{check & 0xFFFFFFFF:#x}", has_instruction, checksum._crc.stats.cache_hits.total())
"""


def how_it_is_compiled(cache: Path, **environment: str) -> str:
    """Check value, whether the instruction is used, and how often the cache had code for this processor."""
    run = subprocess.run(
        [sys.executable, "-c", HOW_IT_IS_COMPILED],
        env=os.environ | {"NUMBA_CACHE_DIR": str(cache)} | environment,
        cwd=Path(__file__).parent.parent.parent,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


if not config.DISABLE_JIT:  # else nothing is compiled

    @pytest.mark.slow
    @pytest.mark.timeout(120)
    def test_a_processor_without_the_instruction_never_gets_code_with_it_from_the_cache(tmp_path):
        assert how_it_is_compiled(tmp_path) == f"0xe3069283 {crc.HAS_INSTRUCTION} 0"

        plain = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
        assert how_it_is_compiled(tmp_path, **plain) == "0xe3069283 False 0"


def a_recording() -> tuple[bytes, int]:
    """Messages around the end of a term, and where the padding frame is."""
    position = PARAMS.term_length - 320
    log = naive.log_of(
        [session_message(b"a"), session_message(bytes(3000)), session_message(b"c" * 9)], PARAMS, position
    )
    return log, 96


@BOTH
def test_data_frames_hold_the_checksum_of_payload_and_padding_bytes(checksum):
    log, padding = a_recording()
    run = np.frombuffer(bytearray(log), np.uint8)

    assert store_checksums(checksum, run, 0, run.size) == run.size

    stored = int.from_bytes(run[12:16].tobytes(), "little", signed=True)
    assert stored == naive.crc(int(checksum), log[32:96])
    assert run[padding : padding + 32].tobytes() == log[padding : padding + 32], (
        "padding keeps its session id"
    )
    assert verify_checksums(checksum, run, 0, run.size) == run.size
    assert restore_session_ids(run, 0, run.size, PARAMS.session_id) == run.size
    assert run.tobytes() == log


@BOTH
def test_verifying_names_the_first_frame_that_changed(checksum):
    log, _ = a_recording()
    run = np.frombuffer(bytearray(log), np.uint8)
    store_checksums(checksum, run, 0, run.size)

    for at, frame in (
        (95, 0),
        (40, 0),
        (12, 0),
        (320 + 1408 + 100, 320 + 1408),
        (run.size - 1, run.size - 96),
    ):
        run[at] ^= 1
        assert verify_checksums(checksum, run, 0, run.size) == frame
        run[at] ^= 1
    assert verify_checksums(checksum, run, 0, 100) == 96, "a frame that is not whole is not right"
    run[300] ^= 1
    assert verify_checksums(checksum, run, 0, run.size) == run.size, "a padding frame has no checksum"


@BOTH
@pytest.mark.parametrize("seed", seeds(5))
def test_any_run_survives_the_way_into_the_archive_and_back(checksum, seed):
    rng = random.Random(seed)
    params = logs.params(rng)
    out, end = np.zeros(1 << 19, np.uint8), 0
    for _ in range(30):
        end = append_message(out, end, end, params, logs.entry(rng))
    log = out[:end].copy()

    assert store_checksums(checksum, out, 0, end) == end
    assert verify_checksums(checksum, out, 0, end) == end
    restore_session_ids(out, 0, end, params.session_id)
    assert (out[:end] == log).all()
