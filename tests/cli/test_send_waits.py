"""``cluster send`` while the log has no more room: it says why it waits, and does not call that a failure."""

from cluster.cli.send import _Events
from cluster.protocol.enums import EventCode
from cluster.protocol.session import NO_ROOM


def test_why_nothing_is_taken_is_said_at_once_and_is_no_error_of_a_message(capsys):
    events = _Events()
    events.on_session_event(1, 1, 1, 0, EventCode.ERROR, f"{NO_ROOM} (disk_free_min)")
    assert capsys.readouterr().err == f"waits: {NO_ROOM} (disk_free_min)\n"
    events.on_session_event(1, 1, 1, 0, EventCode.ERROR, "a service raised")
    assert events.errors == ["a service raised"]
