"""The first frames of a link's connections: what a member says of itself, and whom it believes."""

from collections.abc import Collection

from cluster.protocol import link
from cluster.transport.envelopes import seal
from cluster.transport.member_tls import MemberTls
from cluster.transport.message_frames import link_frame
from cluster.transport.sockets import Buffer, Connection


class LinkHellos:
    """Sealed Hellos and HelloReplies of one member's life."""

    def __init__(
        self, member_id: int, secret: int, cluster_id: int, others: Collection[int], tls: MemberTls | None
    ) -> None:
        self._member_id = member_id
        self._cluster_id = cluster_id
        self._others = others
        self._tls = tls
        self._incarnation = link.incarnation_of(secret)
        self.hello, self.hello_crc = self._sealed_hello(link.ConnectionKind.MEMBER, secret)
        self.question, _ = self._sealed_hello(link.ConnectionKind.TOOL, 0)

    def _sealed_hello(self, kind: link.ConnectionKind, secret: int) -> tuple[list[Buffer], int]:
        hello = link.Hello(
            member_id=self._member_id,
            secret=secret,
            cluster_id=self._cluster_id,
            protocol_version=link.LINK_PROTOCOL_VERSION,
            kind=kind,
        )
        return seal((link_frame(hello),), 0)

    def reply(self, code: link.LinkErrorCode, detail: str) -> list[Buffer]:
        """The sealed answer to a Hello."""
        reply = link.HelloReply(
            member_id=self._member_id,
            incarnation=self._incarnation,
            cluster_id=self._cluster_id,
            protocol_version=link.LINK_PROTOCOL_VERSION,
            code=code,
            detail=detail,
        )
        return seal((link_frame(reply),), 0)[0]

    def judge(self, hello: link.Hello, connection: Connection) -> tuple[link.LinkErrorCode, str]:
        """Whether who says this may have a link, and why not."""
        if hello.cluster_id != self._cluster_id:
            detail = (
                f"cluster {hello.cluster_id}, but member {self._member_id} is of cluster {self._cluster_id}"
            )
            return link.LinkErrorCode.WRONG_CLUSTER, detail
        if hello.protocol_version >> 16 != link.LINK_PROTOCOL_VERSION >> 16:
            ours = link.LINK_PROTOCOL_VERSION
            detail = f"link protocol {hello.protocol_version:#x}, member {self._member_id} speaks {ours:#x}"
            return link.LinkErrorCode.WRONG_VERSION, detail
        if hello.member_id not in self._others:
            known = ", ".join(map(str, self._others))
            return link.LinkErrorCode.REFUSED, f"member {self._member_id} knows only the members {known}"
        if self._tls is not None and not connection.is_local:
            shown, expected = connection.certificate_name, self._tls.name_of(hello.member_id)
            if shown != expected:
                return (
                    link.LinkErrorCode.UNAUTHORISED,
                    f"its certificate is of {shown!r}, expected {expected}",
                )
        return link.LinkErrorCode.OK, ""
