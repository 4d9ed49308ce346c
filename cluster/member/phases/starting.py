"""A member whose state is loaded, and which waits for its services to have loaded theirs."""

from cluster.member.phase import Phase, PhaseName


class Starting(Phase):
    """Its first election follows the acks of the services."""

    name = PhaseName.STARTING


class Closed(Phase):
    """It takes no turns any more."""

    name = PhaseName.CLOSED
