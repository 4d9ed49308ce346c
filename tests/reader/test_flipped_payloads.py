"""A flipped bit of a message's bytes, under CRC-32C: whoever reads it gets an error and not the bytes."""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from cluster.archive.archive import Archive
from cluster.cli.main import main
from cluster.errors import LogDamaged
from cluster.protocol import decode, link
from cluster.protocol.streams import LOG as LOG_STREAM
from cluster.reader import LogReader
from cluster.reader.served_member import ServedMember
from cluster.service.bounded_log_adapter import BoundedLogAdapter
from cluster.transport.log_server import LogServer
from cluster.transport.message_frames import each_frame
from tests.archive.logs import SEGMENT_LENGTH, Clock, a_log
from tests.archive.members import CLUSTER_ID, MEMBER_ID, write_member

LOG = a_log(400)


class Flipped(NamedTuple):
    directory: Path
    begin: int  # of the message
    places: str  # a pattern of what an error has to name


@pytest.fixture
def flipped(tmp_path: Path) -> Flipped:
    write_member(tmp_path, LOG, checksum="crc32c")
    begin = next(begin for begin, end in LOG.entries if begin > SEGMENT_LENGTH and end - begin > 256)
    segment = tmp_path / "archive" / f"0-{SEGMENT_LENGTH}.rec"
    data = bytearray(segment.read_bytes())
    data[begin - SEGMENT_LENGTH + 100] ^= 8
    segment.write_bytes(data)
    where = f"{re.escape(str(segment))} at offset {begin - SEGMENT_LENGTH}: checksum mismatch"
    return Flipped(tmp_path, begin, rf"{where}.*log position {begin}")


def test_a_reader_of_the_directory(flipped):
    ends = []
    with (
        LogReader.open(dir=str(flipped.directory)) as reader,
        pytest.raises(LogDamaged, match=flipped.places),
    ):
        ends += [entry["endPosition"] for entry in reader.entries()]
    with LogReader.open(dir=str(flipped.directory)) as reader:
        seen = [position + len(run) for position, run in reader.blocks(0, flipped.begin)]
    assert seen[-1] == flipped.begin, "up to there it is read"


def test_a_reader_of_another_process_that_a_member_serves(flipped):
    def open_log() -> ServedMember:
        folders = {f"{name}_dir": str(flipped.directory / name) for name in ("cluster", "archive")}
        return ServedMember(
            **folders, aeron_dir=str(flipped.directory / "driver"), cluster_id=CLUSTER_ID, member_id=MEMBER_ID
        )

    async def read() -> bytes:
        with ThreadPoolExecutor(1) as executor:
            server = LogServer(open_log, executor)
            return b"".join(
                [bytes(data) async for data in server.read(link.LogRequest(1, 0, LOG.position, 0))]
            )

    answer = asyncio.run(read())
    frames = list(each_frame(np.frombuffer(answer, np.uint8), 0, len(answer)))
    end = decode(answer, frames[-1][1])
    assert isinstance(end, link.EndOfStream)
    assert end.position <= flipped.begin
    assert re.match(flipped.places, end.text), end.text
    served = b"".join(
        answer[begin : begin + length] for stream, begin, length in frames if stream == LOG_STREAM
    )
    whole = LOG.frames(0, flipped.begin)
    recorded = each_frame(whole, 0, len(whole))
    assert served == b"".join(bytes(whole[begin : begin + length]) for _, begin, length in recorded)


@pytest.mark.parametrize("verb", ["dump", "export"])
def test_the_verbs_that_print_a_log(flipped, verb, capsys):
    target = [str(flipped.directory / "log.parquet")] if verb == "export" else []
    status = main(["log", verb, "--dir", str(flipped.directory), *target])
    captured = capsys.readouterr()
    assert status == 1
    assert re.search(flipped.places, captured.err), captured.err


def test_a_service_that_replays_it(flipped):
    archive = Archive.open(
        str(flipped.directory / "archive"), segment_length=SEGMENT_LENGTH, epoch_ms=Clock()
    )
    taken: list[int] = []

    class Handler:
        is_reading = True

        def on_messages(self, batch: object) -> None:
            taken.extend(batch.positions)  # type: ignore[attr-defined]

        def on_entry(self, message: object, position: int) -> None:
            taken.append(position)

    adapter = BoundedLogAdapter(Handler(), fragment_limit=64, read_bytes=65536, max_message_length=8192)  # type: ignore[arg-type]
    adapter.join(archive.recording(0), LOG.position)
    with pytest.raises(LogDamaged, match=flipped.places):
        while adapter.poll(LOG.position):
            pass
    assert max(taken) <= flipped.begin
    archive.close()
