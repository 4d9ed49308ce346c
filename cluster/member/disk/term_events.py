"""The events of the terms in a log: each is the first message from its term's base in recording.log on."""

from collections.abc import Iterator, Sequence

from cluster.archive.archive import Archive
from cluster.archive.recording_log import RecordingLog
from cluster.consensus.context import NULL_POSITION
from cluster.consensus.histories import EVENTS_MAX
from cluster.log.term_event import first_term_event
from cluster.protocol.link_histories import TermEvent, TermEvents
from cluster.protocol.recording_log import TERM, RecordingLogEntry

_READ_BYTES = 4096


def read_term_events(
    archive: Archive, recording_log: RecordingLog, committed_position: int, known: Sequence[TermEvent] = ()
) -> TermEvents:
    """The last events, as far back as all of them are there. Those ``known`` are not read again."""
    last = recording_log.find_last_term()
    if last is None or not archive.has_recording(last.recording_id):
        return TermEvents(0, committed_position)
    recording = archive.recording(last.recording_id)
    begin, end = recording.start_position, recording.synced_position
    read = {(event.leadership_term_id, event.term_base_log_position): event for event in known}
    events: list[TermEvent] = []
    for entry, term_end in _terms(recording_log, end):
        term_id, base = entry.leadership_term_id, entry.term_base_log_position
        if base < recording.start_position:
            break
        event = read.get((term_id, base)) or _event_of(archive, entry, term_end)
        if event is None or len(events) == EVENTS_MAX:
            begin = events[-1].term_base_log_position if events else end
            break
        events.append(event)
    recorded = last.leadership_term_id, last.term_base_log_position
    return TermEvents(begin, committed_position, *recorded, tuple(reversed(events)))


def _terms(recording_log: RecordingLog, end: int) -> Iterator[tuple[RecordingLogEntry, int]]:
    """Terms that have bytes, the last one first, and where these end."""
    for entry in reversed(recording_log.entries):
        if entry.is_valid and entry.entry_type is TERM:
            base = entry.term_base_log_position
            term_end = end if entry.log_position == NULL_POSITION else min(end, entry.log_position)
            if base < term_end:
                yield entry, term_end
            end = min(end, base)


def _event_of(archive: Archive, entry: RecordingLogEntry, end: int) -> TermEvent | None:
    """The event that a term begins with; None where it cannot be read."""
    term_id, base = entry.leadership_term_id, entry.term_base_log_position
    found = first_term_event(
        lambda at: archive.whole_frames(entry.recording_id, at, end, _READ_BYTES), base, end
    )
    if found is None or found.leadership_term_id != term_id:
        return None
    return TermEvent(term_id, base, found.timestamp, found.leader_member_id, found.log_session_id)
