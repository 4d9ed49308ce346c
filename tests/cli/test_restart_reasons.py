"""``cluster restart`` of a member that does not come back says what it waited for."""

import pytest

from cluster.cli import restart
from cluster.errors import TimedOut
from cluster.reader.standing import standing_text
from cluster.transport.log_client import Unreachable
from tests.cli.answers import ANSWER

OLD, NEW = (standing_text({"uptimeMs": uptime_ms}) for uptime_ms in (3_600_000, 0))


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Unreachable("db1:9000: Connection refused"), "its supervisor has to start it again (db1:9000: Conn"),
        (ANSWER.replace(standing=OLD), "it has not ended"),
        (ANSWER.replace(standing=NEW, leader_member_id=-1), "it follows no leader"),
        (ANSWER.replace(standing=NEW), "it has 96 of 1,000 bytes of committed log"),
    ],
)
def test_what_a_member_lacks_is_said(answer, why):
    def status():
        if isinstance(answer, Unreachable):
            raise answer
        return answer

    member = restart._Member("db1:9000", status, lambda: None)
    with pytest.raises(TimedOut) as timed_out:
        restart._restart(member, 1_000, 0)
    assert str(timed_out.value).startswith(f"db1:9000: not level again within 0 s: {why}")
