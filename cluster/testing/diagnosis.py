"""Why members come to different states from one log: what a service goes by beside it, and from where on.

The log is given to instances of the service alone, to each in another way. All ways ought to end the same;
the first that does not names the mistake, and the first entry after which they differ.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from cluster.archive.log_cursor import LogSource
from cluster.archive.snapshot_archive import SnapshotImage
from cluster.protocol import decode, streams
from cluster.protocol.frame import FLAG_BEGIN, FLAG_END, HEADER_LENGTH, TYPE_DATA, header_at
from cluster.protocol.log import ClusterActionRequest
from cluster.protocol.readable import payload_text, readable_message
from cluster.service.channel import RecoveryState
from cluster.service.clustered_service import ClusteredService
from cluster.service.replay import Saved, Sent, ServiceReplay
from cluster.service.service_context import ServiceContext
from cluster.testing.alike import in_forks, same_chance, same_clock
from cluster.testing.backwards import LogEntry

MakeService = Callable[[], ClusteredService]

SHOWN_BYTES = 60
CHANCE = "It goes by chance: given this log twice it differs, with the same random numbers it does not"
CLOCK = "It goes by a clock: given this log twice it differs, with a clock that shows the same it does not"
SHARED = (
    "It goes by what its instances share, as a variable of its module or of its class: given this log twice "
    "it differs, in two processes that begin alike it does not"
)
PLACES = (
    "It goes by where objects are in memory, as id() and the order of a set of them do: given this log twice "
    "it differs, in two processes that begin alike only where objects are elsewhere"
)
OUTSIDE = (
    "It goes by something outside of it: given this log twice it differs, with the same random numbers, with "
    "a clock that shows the same, and in two processes that begin alike"
)
MEMBER = "It goes by the member that it is on: given this log on two members it differs"
BUFFER = "It keeps a buffer after its callback: where buffers stay as they were it differs"
SNAPSHOT = "Its snapshot does not have all of its state: begun with a snapshot it differs"
BATCHES = "It goes by the batches in which messages come: where they come one by one it differs"


class _Entry(NamedTuple):
    """Of the log, with the position after it. Of one in several fragments ``content`` is empty."""

    end: int
    content: bytes


class _Reported(NamedTuple):
    """What an instance has sent at an entry, and its state after it."""

    sent: tuple[str, ...]
    state: tuple[bytes, ...]


@dataclass(frozen=True)
class _Log:
    """What is given, and to whom."""

    make: MakeService
    source: LogSource
    entries: Sequence[_Entry]
    context: ServiceContext

    def replay(
        self,
        *,
        source: LogSource | None = None,
        recovery: RecoveryState | None = None,
        image: SnapshotImage | None = None,
        member_id: int = 0,
        batch: int = 1,
    ) -> ServiceReplay:
        """Of an instance that was just made; the options are the ways in which it may be given."""
        context = replace(self.context, member_id=member_id, log_fragment_limit=batch)
        return ServiceReplay(self.make(), source or self.source, context, recovery=recovery, image=image)

    def shown(self, entry: _Entry) -> LogEntry:
        before = (each.content for each in self.entries if each.end < entry.end)
        text = _name_of(entry.content)
        return LogEntry(text, sum(_name_of(content) == text for content in before))

    def heard(self, replay: ServiceReplay) -> Iterator[tuple[_Entry, _Reported]]:
        """By entry, from where the replay begins."""
        for entry in self.entries:
            if entry.end > replay.position:
                sent = (_shown(each) for each in replay.run(entry.end) if isinstance(each, Sent))
                yield entry, _Reported(tuple(sent), replay.state())

    def restarted(self) -> ServiceReplay:
        """Begun with the first snapshot in the log, if there is one."""
        for saved in self.replay().run(self.entries[-1].end):
            if isinstance(saved, Saved):
                asked = next(decode(entry.content) for entry in self.entries if entry.end == saved.position)
                assert isinstance(asked, ClusterActionRequest)
                recovery = RecoveryState(asked.leadership_term_id, saved.position, asked.timestamp, (0,))
                return self.replay(recovery=recovery, image=_KeptImage(saved.records))
        return self.replay()


class Cause(NamedTuple):
    """A mistake, for people, and the first entry that shows it."""

    text: str
    entry: LogEntry


def why_apart(make: MakeService, source: LogSource, end: int, context: ServiceContext) -> Cause | None:
    """The first mistake that explains it, with the first entry that shows it; None where none does."""
    log = _Log(make, source, list(_entries(source, end)), context)
    expected = {entry.end: heard for entry, heard in log.heard(log.replay())}
    for mistake, replay in (
        (OUTSIDE, log.replay()),
        (MEMBER, log.replay(member_id=1)),
        (BUFFER, log.replay(source=_Copies(source))),
        (SNAPSHOT, log.restarted()),
    ):
        for entry, found in log.heard(replay):
            if found != expected[entry.end]:
                mistake = _why_it_differs(log) if mistake is OUTSIDE else mistake
                text = f"{mistake}. {_difference_at(entry, expected[entry.end], found)}"
                return Cause(text, log.shown(entry))

    def in_batches(entry: _Entry) -> _Reported:
        replay = log.replay(batch=context.log_fragment_limit)
        deque(replay.run(entry.end), maxlen=0)
        return expected[entry.end]._replace(state=replay.state())

    # States that have come apart stay so: the first entry after which they are apart is searched for.
    first = bisect_left(log.entries, True, key=lambda entry: in_batches(entry) != expected[entry.end])
    if first == len(log.entries):
        return None
    entry = log.entries[first]
    text = f"{BATCHES}. {_difference_at(entry, expected[entry.end], in_batches(entry))}"
    return Cause(text, log.shown(entry))


def _why_it_differs(log: _Log) -> str:
    """Of a service that does not come to the same twice: what has to be the same so that it does."""

    def heard() -> list[_Reported]:
        return [reported for _, reported in log.heard(log.replay())]

    for mistake, alike in ((CHANCE, same_chance), (CLOCK, same_clock)):
        with alike():
            one = heard()
        with alike():
            other = heard()
        if one == other:
            return mistake
    one_fork, other_fork, moved = in_forks(heard)
    if one_fork is None or one_fork != other_fork:
        return OUTSIDE
    return SHARED if one_fork == moved else PLACES


class _Copies:
    """A log whose bytes stay with whoever has read them."""

    def __init__(self, log: LogSource) -> None:
        self._log = log

    def read(self, position: int, max_length: int, out: np.ndarray | None = None) -> np.ndarray:
        return self._log.read(position, max_length).copy()


class _KeptImage(SnapshotImage):
    """Records that were kept."""

    def __init__(self, records: Sequence[bytes]) -> None:
        self._records = deque(records)
        self.position = 0

    @property
    def is_end_of_stream(self) -> bool:
        return not self._records

    def next_message(self) -> bytes | None:
        return self._records.popleft() if self._records else None


def _entries(log: LogSource, end: int) -> Iterator[_Entry]:
    data = log.read(0, end).tobytes()
    offset = 0
    while offset < len(data):
        header = header_at(data, offset)
        if header.type == TYPE_DATA and header.flags & FLAG_END:
            content = data[offset + HEADER_LENGTH : offset + header.frame_length]
            yield _Entry(offset + header.aligned_length, content if header.flags & FLAG_BEGIN else b"")
        offset += header.aligned_length


def _shown(sent: Sent) -> str:
    heard = (
        f"{name}={getattr(sent, name)}"
        for name in ("cluster_session_id", "correlation_id", "deadline")
        if getattr(sent, name) is not None
    )
    payload = () if sent.payload is None else (repr(sent.payload[:SHOWN_BYTES])[1:],)
    return " ".join([sent.kind.value, *heard, *payload])


def _name_of(content: bytes) -> str:
    """As stories show it, but for the log that it is of."""
    return readable_message(content, streams.LOG, payload_text).removeprefix("Log: ")


def _difference_at(entry: _Entry, expected: _Reported, found: _Reported) -> str:
    name = _name_of(entry.content) or "a long message"
    where = f"First after the entry that ends at {entry.end}, {name}"
    for what, one, other in (("sent", expected.sent, found.sent), ("record", expected.state, found.state)):
        for number, pair in enumerate(zip_longest(one, other, fillvalue="nothing")):
            if pair[0] != pair[1]:
                first, second = (
                    each if isinstance(each, str) else repr(each[:SHOWN_BYTES])[1:] for each in pair
                )
                which = "it sends" if what == "sent" else f"record {number} of its snapshot is"
                return f"{where}: {which} {first}, or {second}"
    raise AssertionError("nothing differs")
