"""A member whose log is damaged: it asks the others for what is missing, and does nothing else."""

from cluster.member.disk.repair import Repair
from cluster.member.phase import Next, Phase, PhaseName, Recover
from cluster.member.turn import Turn
from cluster.protocol.link import LinkError, RecordingBlock
from cluster.protocol.sbe import Message


class Repairing(Phase):
    """Exists until the log is repaired, or cut where nobody has the rest."""

    name = PhaseName.REPAIRING

    def __init__(self, repair: Repair, turn: Turn) -> None:
        self._repair = repair
        self._turn = turn

    def do_work(self) -> Next | None:
        return Recover() if self._repair.repair_log(self._turn.now_ns) else None

    def on_message(self, member_id: int, message: Message) -> Next | None:
        if isinstance(message, RecordingBlock | LinkError) and self._repair.log_repair is not None:
            self._repair.log_repair.on_answer(member_id, message, self._turn.now_ns)
        return None

    def on_link_down(self, member_id: int) -> Next | None:
        if self._repair.log_repair is not None:
            self._repair.log_repair.on_link_down(member_id)
        return None
