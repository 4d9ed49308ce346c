"""The event that a term begins with is found behind padding, and nothing else is taken for it."""

from cluster.errors import LogDamaged
from cluster.log.term_event import first_term_event
from cluster.reader.directory import DirectoryLog
from tests.archive.logs import TERM_LENGTH, LogWriter
from tests.archive.members import write_member


def a_log_with_padding() -> tuple[LogWriter, int]:
    """The event of its second term did not fit before the end of a term buffer."""
    log = LogWriter()
    log.term(0)
    log.open_session(1)
    while (left := TERM_LENGTH - log.position) > 1_200:
        log.message(bytes(500))
    log.message(bytes(left - 64 - 64))
    base = log.position
    assert 0 < TERM_LENGTH - base <= 64
    log.term(1, leader_member_id=2)
    return log, base


def test_padding_is_stepped_over_however_few_frames_are_read_at_once():
    log, base = a_log_with_padding()
    for length in (32, 1 << 20):

        def read(position, length=length):
            first = int.from_bytes(log.frames(position, position + 4).tobytes(), "little")
            end = position + max(length, -(-first // 32) * 32)
            return log.frames(position, min(end, log.position))

        event = first_term_event(read, base, log.position)
        assert event is not None and (event.leadership_term_id, event.leader_member_id) == (1, 2)
        assert first_term_event(read, base, base) is None
        message, _ = log.entries[2]
        assert first_term_event(read, message, log.position) is None, "it is no event"


def test_what_cannot_be_read_is_none():
    def read(position):
        raise LogDamaged("a file", position, "a bad sector")

    assert first_term_event(read, 0, 96) is None
    assert first_term_event(lambda _: b"", 0, 96) is None


def test_a_reader_of_a_directory_finds_it_behind_padding(tmp_path):
    log, base = a_log_with_padding()
    write_member(tmp_path, log)
    event = DirectoryLog(str(tmp_path))._term_event_at(base)
    assert event is not None and event.leader_member_id == 2
