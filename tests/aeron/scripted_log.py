"""The log of a real cluster as a test writes it, and sessions that are opened in it."""

from __future__ import annotations

from cluster.aeron.lane_index import LaneAlias
from cluster.aeron.session_entries import EntryKind, SessionEntry
from cluster.protocol.enums import Offer

LENGTH = 64  # of an entry


class ScriptedSession:
    """Open until the client closes it."""

    def __init__(self, log, session_id):
        self._log = log
        self.session_id, self.leadership_term_id = session_id, log.term
        self.sent = []
        self.is_closed = False

    def offer(self, payload, leadership_term_id):
        if self.is_closed or leadership_term_id != self.leadership_term_id:
            return Offer.NOT_CONNECTED
        self.sent.append(payload)
        if self._log.commits:
            self._log.messages(self.session_id, payload)
        return 96 * len(self.sent)

    def follow_leader(self, leadership_term_id, member_id):
        self.leadership_term_id = leadership_term_id

    def close(self):
        if self._log.commits and not self.is_closed:
            self._log.close(self.session_id)
        self.is_closed = True


class ScriptedLog:
    """``keeps_opens``: of sessions that ask for it; ``commits``: what they do. Else the test writes it."""

    def __init__(self):
        self.log, self.term, self.now_ns = [], 4, 0
        self.sessions = []
        self.keeps_opens = True
        self.commits = False

    @property
    def end(self):
        return LENGTH * len(self.log)

    @property
    def message_end(self):
        """After the last message."""
        return max(entry.end_position for entry in self.log if entry.payload is not None)

    @property
    def aliases(self):
        """Of all sessions, in the order of their opens."""
        return [LaneAlias.of(entry.response_channel) for entry in self.log if entry.response_channel]

    def append(self, entry_type, **fields):
        end = self.end
        self.log.append(SessionEntry(entry_type, end, end + LENGTH, self.term, **fields))

    def open(self, alias, session_id):
        channel = f"aeron:udp?endpoint=a:1|alias={alias}"
        self.append(EntryKind.OPEN, session_id=session_id, response_channel=channel)

    def close(self, session_id):
        self.append(EntryKind.CLOSE, session_id=session_id)

    def messages(self, session_id, *payloads):
        for payload in payloads:
            self.append(EntryKind.MESSAGE, session_id=session_id, payload=payload)

    def new_term(self):
        self.term += 1
        self.append(EntryKind.TERM, leader_member_id=2)

    def connect(self, alias):
        session = ScriptedSession(self, 100 + len(self.sessions))
        self.sessions.append(session)
        if self.keeps_opens:
            self.open(alias, session.session_id)
        return session

    def entries(self, begin=0):
        at = begin // LENGTH
        while True:
            if at < len(self.log):
                at += 1
                yield self.log[at - 1]
            else:
                yield None
