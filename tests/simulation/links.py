"""Links and calls of members that are heard: what is to be sent to another member is told before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cluster.archive.files import Buffer
from cluster.log.connection_table import KIND, LINK_OUT, OWNER
from cluster.protocol.frame import HEADER_LENGTH
from cluster.testing.calls import SimulatedCalls
from cluster.transport.links import MemberLinks

if TYPE_CHECKING:
    from tests.simulation.member import Member


class ObservedLinks(MemberLinks):
    """Production links; what they are to take is told before it is on its way."""

    def __init__(self, member: Member, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._member = member

    def send(self, member_id: int, *buffers: Buffer) -> int:
        if self.is_up(member_id):
            self._member.on_sent(member_id, buffers)
        return super().send(member_id, *buffers)

    def send_again(self, member_id: int, frame: bytes) -> int:
        """An old message comes once more."""
        return super().send(member_id, frame)


class ObservedCalls(SimulatedCalls):
    """The same of compiled turns."""

    _owner: Member

    def _send_bytes(self, descriptor: int, data: bytes) -> int:
        table = self._owner.poller.table
        if table.get(descriptor, KIND) == LINK_OUT:
            self._owner.on_sent(table.get(descriptor, OWNER), (data[HEADER_LENGTH:],))
        return super()._send_bytes(descriptor, data)
