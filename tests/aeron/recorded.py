"""What an archive has recorded of a publication that is no cluster's: frames, made here."""

from __future__ import annotations

import numpy as np

from cluster.protocol.frame import DATA_FRAME_HEADER, FLAG_BEGIN, FLAG_END, TYPE_DATA, TYPE_PAD

STREAM, SESSION = 1001, -7
TERM_LENGTH = 64 * 1024


def frame(position: int, payload: bytes, flags: int = FLAG_BEGIN | FLAG_END, kind: int = TYPE_DATA) -> bytes:
    header = np.zeros(1, DATA_FRAME_HEADER)
    place = position % TERM_LENGTH, SESSION, STREAM, 9 + position // TERM_LENGTH
    header[0] = (32 + len(payload), 0, flags, kind, *place, position * 3)
    data = header.tobytes() + payload
    return data + bytes(-len(data) % 32)


def recorded(terms: int = 2) -> tuple[np.ndarray, list[dict[str, object]]]:
    """Frames of a publication, fragments among them, and what a reader gives of them."""
    data, rows = bytearray(), []
    for count in range(10_000):
        payload, flags = b"x%d" % count * (1 + count % 97), (0xC0, 0x80, 0x00, 0x40)[count % 4]
        at = len(data)
        whole = frame(at, payload, flags)
        if (room := TERM_LENGTH - at % TERM_LENGTH) < len(whole):
            data += frame(at, bytes(room - 32), kind=TYPE_PAD)
            if len(data) >= terms * TERM_LENGTH:
                break
            at = len(data)
            whole = frame(at, payload, flags)
        data += whole
        named = {"position": at, "endPosition": len(data), "payload": payload, "frameFlags": flags}
        named |= {"termId": 9 + at // TERM_LENGTH, "termOffset": at % TERM_LENGTH}
        rows.append(named | {"frameSessionId": SESSION, "streamId": STREAM, "reservedValue": 3 * at})
    return np.frombuffer(bytes(data), np.uint8), rows
