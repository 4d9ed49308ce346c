"""How many messages of a session a leader's log has: what a client that comes back is told to go on from."""

import pytest

from tests.consensus.session_language import LEADING, Sessions

CHANGES = {
    "it loses its leadership": lambda manager: manager.prepare_for_new_election(0, LEADING, 0),
    "it leads again": lambda manager: manager.prepare_for_new_term(0, is_startup=False),
}


@pytest.mark.parametrize("change", CHANGES)
def test_messages_that_were_appended_and_never_committed_are_not_counted_any_more(change):
    """A client that was told that they are there would never send them again."""
    sessions = Sessions()
    sessions.replays_open(4, position=0)
    counts = sessions.manager.table.slots[sessions.manager.table.slot_of(4)]
    counts["appended"], counts["committed"] = 5, 3

    CHANGES[change](sessions.manager)

    assert (counts["appended"], counts["committed"]) == (3, 3)
