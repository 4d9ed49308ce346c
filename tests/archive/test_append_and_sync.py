"""What is written, proven and synced: single routines as Python. In which order: test_single_frames.py."""

import errno
from types import SimpleNamespace

import pytest

from cluster.archive import append_and_sync, file_calls, sync_proof
from cluster.archive import recording_words as of_recording
from cluster.log.calls import CALLS
from cluster.log.kernel import as_python


@pytest.mark.parametrize(
    ("errors", "error", "calls"),
    [([], 0, 1), ([errno.EINTR] * 2, 0, 3), ([errno.EINTR, errno.EIO], errno.EIO, 2)],
)
def test_a_sync_is_asked_for_until_no_signal_interrupts_it(monkeypatch, errors, error, calls):
    """Else what was interrupted would be reported as safe."""
    asked = []
    monkeypatch.setattr(file_calls, "wrap_i32", lambda value: value)
    monkeypatch.setattr(
        file_calls, "call_at", lambda *_: asked.append(_) or (-1 if len(asked) <= len(errors) else 0)
    )
    monkeypatch.setattr(file_calls, "error_number", lambda calls: errors[len(asked) - 1])

    assert as_python(file_calls.sync_file)(range(CALLS), 5, False) == error
    assert asked == [(file_calls.SYNC_DATA, 5)] * calls


@pytest.mark.parametrize(
    ("results", "errors", "error", "asked"),
    [
        ([40, 60], [], 0, [(1000, 100, 7000), (1040, 60, 7040)]),
        ([40, -1, 60], [errno.EINTR], 0, [(1000, 100, 7000), (1040, 60, 7040), (1040, 60, 7040)]),
        ([40, -1], [errno.ENOSPC], errno.ENOSPC, [(1000, 100, 7000), (1040, 60, 7040)]),
        ([0], [0], errno.EIO, [(1000, 100, 7000)]),
    ],
    ids=["in part", "interrupted", "no room", "nothing"],
)
def test_all_is_written_or_there_is_an_error(monkeypatch, results, errors, error, asked):
    calls, results, errors = [], iter(results), iter(errors)
    monkeypatch.setattr(file_calls, "call_at", lambda call, *given: calls.append(given) or next(results))
    monkeypatch.setattr(file_calls, "error_number", lambda _: next(errors))

    assert as_python(file_calls.write_file)(range(CALLS), 5, 1000, 100, 7000) == error
    assert calls == [(5, *piece) for piece in asked]


def test_a_c_library_without_a_call_for_ranges_is_not_asked(monkeypatch):
    monkeypatch.delattr(file_calls, "call_at")

    assert as_python(file_calls.sync_range)([0] * CALLS, 5, 0, 96, file_calls.START_WRITING) == 0


@pytest.fixture
def appended(monkeypatch):
    """Appends a frame of 96 bytes with a checksum; ``begun`` is what the device is asked to begin with."""
    for name in ("copy_bytes", "store"):
        monkeypatch.setattr(append_and_sync, name, lambda *_: 0)
    monkeypatch.setattr(append_and_sync, "get_i32", lambda *_: 96)
    monkeypatch.setattr(append_and_sync, "align_frame", lambda length: length)
    monkeypatch.setattr(append_and_sync, "_write", lambda *_: 0)
    monkeypatch.setattr(append_and_sync, "_write_back", as_python(append_and_sync._write_back))
    words = [0] * of_recording.RECORDING_WORDS
    words[of_recording.CHECKSUM] = words[of_recording.SYNC_LEVEL] = 1
    words[of_recording.SEGMENT_LENGTH] = 64 * append_and_sync.WRITE_BACK_BYTES
    t = SimpleNamespace(words=words, proof=sync_proof.NO_PROOF, calls=None, scratch=None, begun=[])
    monkeypatch.setattr(
        append_and_sync,
        "sync_range",
        lambda calls, file, offset, length, how: t.begun.append((offset, length)) or 0,
    )
    t.append = lambda: as_python(append_and_sync.append_to_segment)(t, None, 0, 96)
    return t


def test_of_two_frames_before_a_sync_none_is_single(appended):
    """A frame that is synced alone needs no slot in the proof file, two do."""
    assert appended.append() == 0 and appended.words[of_recording.IS_SINGLE_FRAME]
    assert appended.append() == 0 and not appended.words[of_recording.IS_SINGLE_FRAME]


def test_the_device_begins_within_the_segment_where_the_one_before_was_not_begun(appended):
    words, base = appended.words, 8 * append_and_sync.WRITE_BACK_BYTES
    words[of_recording.SEGMENT_BASE] = words[of_recording.APPEND_POSITION] = base
    words[of_recording.WRITTEN_BACK] = base - append_and_sync.WRITE_BACK_BYTES
    assert appended.append() == 0

    assert appended.begun == [(0, 96)]
    assert words[of_recording.WRITTEN_BACK] == base + 96


def test_the_device_begins_with_each_mebibyte_once_whatever_is_synced(appended):
    words, length = appended.words, append_and_sync.WRITE_BACK_BYTES
    words[of_recording.APPEND_POSITION] = words[of_recording.SYNCED_POSITION] = length - 96
    for _ in range(2):
        assert appended.append() == 0
        assert appended.begun == [(0, length)]


def test_what_is_handed_over_is_of_the_segment_though_the_one_before_is_not_synced(appended, monkeypatch):
    slots, words, base = [], appended.words, 8 * append_and_sync.WRITE_BACK_BYTES
    monkeypatch.setattr(append_and_sync, "write_slot", lambda *given: slots.append(given[3:5]) or 0)
    words[of_recording.SEGMENT_BASE], words[of_recording.APPEND_POSITION] = base, base + 192
    words[of_recording.SYNCED_POSITION] = base - 96

    assert as_python(append_and_sync._hand_over)(appended) == 0
    assert appended.begun == [(0, 192)] and slots == [(base - 96, base + 192)]


@pytest.mark.parametrize("is_single", [False, True])
@pytest.mark.parametrize("failed", [None, "_hand_over", "sync_file", "write_mark", "write_slot_and_mark"])
def test_what_is_synced_counts_once_its_proof_is_written_too(appended, monkeypatch, failed, is_single):
    """A fault is told, whichever of the steps has met it, and none follows it."""
    steps = ["sync_file", "write_slot_and_mark"] if is_single else ["_hand_over", "sync_file", "write_mark"]
    asked, words = [], appended.words
    for name in ("_hand_over", "sync_file", "write_mark", "write_slot_and_mark"):
        step = lambda *_, name=name: asked.append(name) or 5 * (name == failed)  # noqa: E731
        monkeypatch.setattr(append_and_sync, name, step)
    monkeypatch.setattr(append_and_sync, "awaits_single_frames", lambda proof: is_single)
    appended.proof = sync_proof.NO_PROOF.copy()
    appended.proof[append_and_sync.FILE] = 3
    clock = iter((5_000, 7_000))
    monkeypatch.setattr(append_and_sync, "_clock_ns", lambda t: next(clock))
    words[of_recording.APPEND_POSITION], words[of_recording.UNPROVEN_CRC] = 96, 7

    is_met = failed in steps
    assert as_python(append_and_sync.sync_segment)(appended) == 5 * is_met
    assert asked == (steps[: steps.index(failed) + 1] if is_met else steps)
    assert words[of_recording.SYNCED_POSITION] == (0 if is_met else 96)
    assert words[of_recording.UNPROVEN_CRC] == (7 if is_met else 0)
    assert words[of_recording.SYNC_NS] == (0 if is_met else 2_000)
