"""Members as a reader sees them, played: they are up or down, ahead or behind, as a test says."""

import numpy as np

from cluster.protocol import link
from cluster.protocol.enums import ClusterTimeUnit, Role
from cluster.protocol.frame import frame
from cluster.protocol.log import TimerEvent
from cluster.reader import LogReader
from cluster.reader.remote import RemoteLog
from cluster.transport.log_client import Unreachable

TERM_LENGTH = 65_536


class FakeMember:
    """A client's view of a member: timers, of 64 bytes each, from ``start`` to ``committed``."""

    def __init__(self, member_id, role=Role.FOLLOWER, committed=6400):
        self.member_id = member_id
        self.role = role
        self.start = 0
        self.committed = committed
        self.session_id = 5
        self.is_up = True
        self.blocks_until_break = None
        self.reads = []
        self.ends_with = None
        self.is_closed = False
        self.ingress_endpoints = ""
        self.tcp_endpoints = ""
        self.terms = {}  # of positions, where it says them

    def status(self):
        if not self.is_up:
            raise Unreachable("down")
        return link.LogStatus(
            correlation_id=0,
            start_position=self.start,
            commit_position=self.committed,
            append_position=self.committed,
            leadership_term_id=1,
            first_term_timestamp=77,
            first_log_session_id=self.session_id,
            cluster_id=0,
            member_id=self.member_id,
            leader_member_id=-1,
            role=self.role,
            election_state=17,
            module_state=1,
            session_count=0,
            term_length=TERM_LENGTH,
            mtu=1408,
            initial_term_id=9,
            time_unit=ClusterTimeUnit.MILLIS,
            ingress_endpoints=self.ingress_endpoints,
            tcp_endpoints=self.tcp_endpoints,
        )

    def read(self, from_position, to_position, max_bytes, wanted=()):
        self.reads.append((from_position, to_position))
        yield self.status().replace(term=self.terms.get(from_position, ""))
        if from_position < self.start:
            yield link.EndOfStream(0, from_position, link.LinkErrorCode.NOT_AVAILABLE, "purged")
            return
        position = from_position
        while position < min(to_position, self.committed):
            if self.blocks_until_break == 0:
                raise Unreachable("broke off")
            if self.blocks_until_break is not None:
                self.blocks_until_break -= 1
            yield self.frame(position)
            position += 64
        if self.ends_with is not None:
            yield link.EndOfStream(0, position, link.LinkErrorCode.FAILED, self.ends_with)
        elif position < to_position:
            yield link.EndOfStream(0, position, link.LinkErrorCode.NOT_AVAILABLE, "behind")
        else:
            yield link.EndOfStream(0, position, link.LinkErrorCode.OK)

    @staticmethod
    def frame(position):
        data = frame(
            TimerEvent(leadership_term_id=1, correlation_id=position, timestamp=77).encode(),
            session_id=0,
            stream_id=100,
            term_id=9 + position // TERM_LENGTH,
            term_offset=position % TERM_LENGTH,
        )
        return np.frombuffer(data, np.uint8)

    def close(self):
        self.is_closed = True


def open_reader(members, spread=0, endpoints="", on_wait=lambda seconds: None, **options):
    now_ns = 0

    def wait(seconds):
        nonlocal now_ns
        now_ns += int(seconds * 1e9)
        on_wait(seconds)

    return LogReader(
        RemoteLog(
            endpoints or ",".join(f"{member.member_id}=h{member.member_id}:1" for member in members),
            open_client=lambda endpoint: members[int(endpoint.host[1:])],
            spread=spread,
            now_ns=lambda: now_ns,
            wait=wait,
            **options,
        )
    )
