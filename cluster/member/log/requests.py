"""A follower's requests for the log of its leader, and what comes of them.

ReplicationRequest ──▶    asked again after a broken link, and while the link does not take it
◀── LogImage              joins on to what is recorded: from here on its bytes are taken
◀── log bytes             LogSubscription checks and writes them
"""

from cluster.archive.files import Buffer
from cluster.errors import ClusterError, RemoteProtocolError
from cluster.member.log.member_log import MemberLog
from cluster.member.log.subscription import LogSubscription
from cluster.member.ports import Links
from cluster.member.reporter import Reporter
from cluster.protocol.link import LinkError, LinkErrorCode, LogGeometry, LogImage, ReplicationRequest
from cluster.transport.message_frames import link_frame


class LogRequests:
    """``MemberLog.subscription`` says what is wanted, and of whom."""

    def __init__(self, log: MemberLog, links: Links, reporter: Reporter) -> None:
        self._log = log
        self._links = links
        self._reporter = reporter
        self.geometry_of: dict[int, LogGeometry] = {}  # of members' logs, as they reported it

    def request(self) -> None:
        """Ask for what the subscription wants, unless it was asked for on this connection."""
        subscription = self._log.subscription
        if subscription is None or subscription.is_requested:
            return
        if not self._links.is_up(subscription.leader_member_id):
            return
        request = ReplicationRequest(
            correlation_id=subscription.correlation_id,
            leadership_term_id=subscription.leadership_term_id,
            from_position=self._log.append_position,
            to_position=subscription.stop_position,
        )
        is_sent = self._links.send(subscription.leader_member_id, link_frame(request)) > 0
        subscription.is_requested = is_sent

    def on_link_up(self, member_id: int) -> None:
        subscription = self._log.subscription
        if subscription is not None and subscription.leader_member_id == member_id:
            self.request()

    def on_link_down(self, member_id: int) -> None:
        """What was announced on the connection proves nothing any more."""
        subscription = self._log.subscription
        if subscription is not None and subscription.leader_member_id == member_id:
            subscription.has_image = subscription.is_requested = False

    def subscription_of(self, member_id: int, correlation_id: int) -> LogSubscription | None:
        """The subscription that an answer is for; None for an answer to something else."""
        subscription = self._log.subscription
        is_it = (
            subscription is not None
            and subscription.leader_member_id == member_id
            and subscription.correlation_id == correlation_id
        )
        return subscription if is_it else None

    def is_refused(self, member_id: int, error: LinkError) -> bool:
        """Whether the answer says that the leader's log begins after the end of this one."""
        if (
            error.code != LinkErrorCode.NOT_AVAILABLE
            or self.subscription_of(member_id, error.correlation_id) is None
        ):
            return False
        self._reporter.event(f"member {member_id}: {error.text}")
        return True

    def join(self, subscription: LogSubscription, image: LogImage) -> None:
        """The leader begins to send what was asked for. Raises ClusterError when it does not join on."""
        if (fault := self._fault(subscription, image)) is not None:
            self._log.subscription = None
            raise ClusterError(f"the log of member {subscription.leader_member_id} {fault}")
        subscription.has_image = True

    def _fault(self, subscription: LogSubscription, image: LogImage) -> str | None:
        position, params = self._log.append_position, subscription.params
        geometry = self.geometry_of.get(subscription.leader_member_id)
        if image.join_position != position:
            return f"joins at {image.join_position}, expected {position}"
        if geometry is not None:
            for key, theirs, ours in (
                ("log_term_length", geometry.term_length, params.term_length),
                ("log_mtu", geometry.mtu, params.mtu),
            ):
                if theirs != ours:
                    return (
                        f"has {key} = {theirs}, and this one {ours}; a log keeps what it was begun with: "
                        f"stop this member, remove its dir, and start it with {key} = {theirs}"
                    )
        return None

    def on_frames(self, member_id: int, buffer: Buffer, start: int, end: int) -> int:
        """A run of another's log; its end, ``start`` if nobody asked. Raises RemoteProtocolError."""
        subscription = self._log.subscription
        if subscription is None:
            return start
        try:
            return subscription.on_frames(member_id, buffer, start, end)
        except RemoteProtocolError:
            self._log.subscription = None
            raise
