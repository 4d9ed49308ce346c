"""Role, established leader and module state of a member, each shown by its counter when it changes."""

from cluster.consensus.context import NULL_VALUE
from cluster.consensus.replica import ReplicatedState
from cluster.member.counters import MemberCounters
from cluster.member.reporter import Reporter
from cluster.protocol.enums import ConsensusModuleState, Role


class MemberStatus:
    """``leader_member_id`` is the leader that is led or followed, NULL_VALUE while none is established."""

    def __init__(
        self, member_id: int, replica: ReplicatedState, counters: MemberCounters, reporter: Reporter
    ) -> None:
        self.member_id = member_id
        self.role = Role.FOLLOWER
        self.leader_member_id = NULL_VALUE
        self.is_handing_over = False  # leadership, to another member
        self._replica = replica
        self._counters = counters
        self._reporter = reporter

    @property
    def is_leading(self) -> bool:
        """Whether this member is the established leader."""
        return self.leader_member_id == self.member_id

    @property
    def is_following(self) -> bool:
        """Whether another member is the established leader."""
        return self.leader_member_id not in (NULL_VALUE, self.member_id)

    @property
    def takes_input(self) -> bool:
        """Whether this member leads, and is neither suspended nor ending, taking a snapshot, handing over."""
        return self.is_leading and self._replica.module.is_active and not self.is_handing_over

    @property
    def module(self) -> ConsensusModuleState:
        return self._replica.module.state

    def set_leader(self, member_id: int) -> None:
        """Who is established now; NULL_VALUE for nobody."""
        self.leader_member_id = member_id
        self._counters.leader_member_id.set(member_id)

    def set_role(self, role: Role) -> None:
        if role is not self.role:
            self._reporter.event(f"role {self.role.name} -> {role.name}")
            self.role = role
            self._counters.node_role.set(role)

    def set_module(self, state: ConsensusModuleState) -> None:
        before = self.module
        self._replica.module.change(state)
        self.on_module_changed(before)

    def on_module_changed(self, before: ConsensusModuleState) -> None:
        """The module's state is another than ``before``, or was confirmed."""
        if self.module is not before:
            self._reporter.event(f"module {before.name} -> {self.module.name}")
        self.show_module()

    def show_module(self) -> None:
        self._counters.module_state.set(self.module)
