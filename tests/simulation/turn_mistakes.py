"""Mistakes of a line each in compiled turns and what they share: it runs as Python where one is made."""

from __future__ import annotations

from tests.simulation.line_mistakes import LineMistake

BUSY, TURN, SERVICE = "cluster.member.busy", "member/busy/test_one_turn.py", "member/busy/test_one_service.py"
WAITS = "member/busy/test_waits.py"
SUPERVISED, SEVERAL = "member/busy/test_one_supervised.py", "member/busy/test_several_services.py"


def _of_a_turn(module: str, right: str, wrong: str, test: str) -> LineMistake:
    name = module if module.startswith("cluster.") else f"{BUSY}.{module}"
    return LineMistake(name, right, wrong, test, is_compiled=True)


TURN_MISTAKES = {
    # what a leader writes, sends and commits
    "log_sent_past_a_gap": _of_a_turn(
        "leading",
        "t.followers[row + STREAM_POSITION] != begin:",
        "t.followers[row + STREAM_POSITION] > begin:",
        f"{TURN}::test_a_follower_that_lacks_log_is_not_sent_what_follows_it",
    ),
    "piece_that_was_not_taken_counts_as_sent": _of_a_turn(
        "leading",
        "t.followers[row + STREAM_POSITION] = piece",
        "t.followers[row + STREAM_POSITION] = end",
        "member/busy/test_routines.py::"
        "test_how_far_a_follower_was_sent_the_log_is_the_last_piece_that_it_took",
    ),
    "committed_before_the_sync": _of_a_turn(
        "leading",
        "    if not sync(t):\n        return\n    update_leader_position(t)\n",
        "    update_leader_position(t)\n    if not sync(t):\n        return\n",
        f"{TURN}::test_a_majority_without_the_leader_commits_no_more_than_is_on_its_own_disk",
    ),
    "report_beyond_the_log_believed": _of_a_turn(
        "leading",
        "            or position > t.recording.words[APPEND_POSITION]\n",
        "",
        f"{TURN}::test_what_is_no_report_of_this_term_is_python_s_and_nothing_was_done",
    ),
    "report_of_an_older_term_believed": _of_a_turn(
        "leading",
        "get_i64(buffer, begin + LEADERSHIP_TERM_AT) != t.leadership",
        "get_i64(buffer, begin + LEADERSHIP_TERM_AT) > t.leadership",
        f"{TURN}::test_what_is_no_report_of_this_term_is_python_s_and_nothing_was_done",
    ),
    "commit_of_the_leader_told_for_that_of_the_majority": _of_a_turn(
        "leading",
        "    t.log_end[FLUSHED] = end\n"
        "    set_position(t, t.leadership[quorum.LEADERSHIP_TERM_ID], t.leadership[quorum.QUORUM_POSITION])",
        "    t.log_end[FLUSHED] = end\n"
        "    set_position(t, t.leadership[quorum.LEADERSHIP_TERM_ID], t.leadership[quorum.COMMIT_POSITION])",
        f"{TURN}::test_followers_are_told_what_a_majority_has_where_that_is_less_than_was_committed",
    ),
    "begin_of_a_write_is_measured": _of_a_turn(
        "leading",
        "w[at.MEASURED_POSITION], w[at.MEASURED_FROM_NS] = end, read_clock(t)",
        "w[at.MEASURED_POSITION], w[at.MEASURED_FROM_NS] = begin, read_clock(t)",
        f"{TURN}::test_what_a_majority_reports_is_committed_served_acknowledged_and_told_with_the_next_log",
    ),
    "log_without_room_not_told": _of_a_turn(
        "leading",
        "        if t.log_end[BASE] == base:\n            w[at.REASON] |= at.ROOM\n",
        "        if t.log_end[BASE] == base:\n",
        f"{TURN}::test_a_log_without_room_is_written_and_the_rest_of_what_came_is_pythons",
    ),
    "commit_held_back_by_idle_spin": _of_a_turn(
        "turn",
        "if found != 0 or (w[at.ROLE] == at.LEADER_ROLE and quorum.has_waited(t.leadership, w[at.NOW_NS])):",
        "if found != 0:",
        f"{WAITS}::test_with_idle_spin_a_commit_position_is_told_when_it_is_due",
    ),
    "follower_heard_a_turn_too_early": _of_a_turn(
        "leading",
        "            t.words[at.NOW_NS],\n        )\n        begin +=",
        "            t.words[at.LAST_NS],\n        )\n        begin +=",
        f"{TURN}::test_what_a_majority_reports_is_committed_served_acknowledged_and_told_with_the_next_log",
    ),
    # what a follower takes and reports
    "log_of_another_session_taken": _of_a_turn(
        "following",
        "t.params, False)",
        "t.params, True)",
        f"{TURN}::test_what_a_follower_does_not_take_is_pythons_and_nothing_was_done",
    ),
    "log_is_a_sign_of_life": _of_a_turn(
        "following",
        "            begin = log_end\n            continue\n        quorum.take_commit",
        "            begin = log_end\n        quorum.take_commit",
        f"{TURN}::test_log_is_written_and_synced_before_it_is_reported_and_processed_once_it_is_committed",
    ),
    "reported_before_the_sync": _of_a_turn(
        "following",
        "    if not sync(t):\n        return\n",
        "",
        f"{TURN}::test_log_is_written_and_synced_before_it_is_reported_and_processed_once_it_is_committed",
    ),
    "log_of_any_member_taken": _of_a_turn(
        "following",
        "is_leader = member_id == t.follower[quorum.FOLLOWED_LEADER]",
        "is_leader = True",
        f"{TURN}::test_what_a_follower_does_not_take_is_pythons_and_nothing_was_done",
    ),
    "half_a_frame_taken_with_bytes_of_before": _of_a_turn(
        "following",
        "    if frames_end != end:\n        return False\n",
        "",
        f"{TURN}::test_what_a_follower_does_not_take_is_pythons_and_nothing_was_done",
    ),
    "written_on_after_a_fault": _of_a_turn(
        "following",
        "            if not append(t, place, place + log_end - begin):\n                return False\n",
        "            append(t, place, place + log_end - begin)\n",
        f"{TURN}::test_after_a_write_that_failed_nothing_is_written_synced_or_reported",
    ),
    "entry_for_python_shown_as_committed": _of_a_turn(
        "following",
        "t.counters[w[at.COMMIT_COUNTER]] = t.cursor[TAKEN_POSITION]",
        "t.counters[w[at.COMMIT_COUNTER]] = limit",
        f"{TURN}::test_a_follower_processes_no_further_than_an_entry_for_python",
    ),
    "position_of_the_base_counted": _of_a_turn(
        "buffer",
        "limit - base, taken, t.sessions)",
        "limit - base, base, t.sessions)",
        f"{TURN}::test_what_a_majority_reports_is_committed_served_acknowledged_and_told_with_the_next_log",
    ),
    "written_position_shown_as_synced": _of_a_turn(
        "recorder",
        "t.counters[t.words[at.POSITION_COUNTER]] = t.recording.words[SYNCED_POSITION]",
        "t.counters[t.words[at.POSITION_COUNTER]] = t.recording.words[APPEND_POSITION]",
        f"{TURN}::test_after_a_fault_of_the_disk_nothing_is_committed",
    ),
    # connections
    "checksum_goes_on_though_nothing_was_sent": _of_a_turn(
        "envelopes",
        "header_length, source, begin, end - begin):\n        return False\n",
        "header_length, source, begin, end - begin):\n"
        "        t.connections[row + CRC] = crc\n        return False\n",
        f"{TURN}::test_a_report_that_has_no_room_to_wait_was_not_made",
    ),
    "rest_begins_with_what_was_taken": _of_a_turn(
        "envelopes",
        "a_bytes, a + taken, a_length - taken)",
        "a_bytes, a, a_length - taken)",
        f"{TURN}::test_what_a_link_takes_in_part_is_left_to_python_and_nothing_is_sent_past_it",
    ),
    "half_a_frame_of_another": _of_a_turn(
        "receiving",
        "t.connections[row + PART_ROW] * PART_BYTES, kept)",
        "0, kept)",
        f"{TURN}::test_half_an_envelope_waits_for_its_rest_beside_that_of_another",
    ),
    "half_a_frame_behind_one_for_python_lost": _of_a_turn(
        "receiving",
        "= descriptor, begin, received",
        "= descriptor, begin, end",
        f"{TURN}::test_what_comes_before_an_envelope_for_python_is_done_and_what_follows_is_not",
    ),
    "fragment_taken_for_a_position": _of_a_turn(
        "envelopes",
        "        and get_i32(buffer, offset + VERSION_AT) == DATA_UNFRAGMENTED\n",
        "",
        f"{TURN}::test_what_a_follower_does_not_take_is_pythons_and_nothing_was_done",
    ),
    "no_frame_waits_for_its_rest": _of_a_turn(
        "receiving",
        "begin == end and follows != NOT_A_FRAME",
        "begin == end",
        "member/busy/test_routines.py::test_half_a_frame_is_waited_for_where_it_can_be_one",
    ),
    # the service
    "answers_of_the_run_before_kept_again": _of_a_turn(
        "turn",
        " = w[at.UNKEPT] = 0",
        " = 0",
        "member/busy/test_routines.py::"
        "test_a_run_begins_with_nothing_unsent_or_unkept_and_sends_the_limit_that_is_due",
    ),
    "one_run_of_kept_answers_sent": _of_a_turn(
        "egress",
        "begin, end - begin, frames, 0, 0)\n",
        "begin, end - begin, frames, 0, 0)\n        break\n",
        f"{SUPERVISED}::test_a_client_that_asks_is_sent_what_is_kept_of_each_service",
    ),
    "messages_of_a_supervised_session_passed_over": _of_a_turn(
        "serving",
        "        count = kept\n",
        "",
        f"{SUPERVISED}::test_the_first_answer_of_a_session_is_pythons_with_all_that_follow",
    ),
    "answers_in_the_term_of_the_acknowledgements": _of_a_turn(
        "egress",
        "            term_id,\n",
        "            t.leadership[quorum.LEADERSHIP_TERM_ID],\n",
        f"{TURN}::test_what_a_majority_reports_is_committed_served_acknowledged_and_told_with_the_next_log",
    ),
    "answers_of_a_followers_process_passed_over": _of_a_turn(
        "remote",
        "    if rows == 0 or (unsupervised > 0 and not is_leader):\n",
        "    if rows == 0:\n",
        f"{SERVICE}::test_what_a_process_says_that_is_rare_is_pythons",
    ),
    "position_of_one_service_for_that_of_another": _of_a_turn(
        "remote",
        "descriptor * ROW_WORDS + OWNER] * SERVICE_WORDS",
        "descriptor * ROW_WORDS + OWNER] * 0",
        f"{SEVERAL}::test_each_answers_for_itself_and_by_its_id_in_the_term_in_which_it_read",
    ),
    "term_of_a_process_for_that_of_the_service_in_line": _of_a_turn(
        "remote",
        "        t.services[row + ANSWERED] += unsupervised\n",
        "        t.services[row + ANSWERED] += unsupervised\n"
        "        t.words[at.SERVICE_LEADERSHIP_TERM_ID] = get_i64(t.received, frame + TERM_OF_ANSWERS_AT)\n",
        f"{SEVERAL}::test_the_one_in_line_answers_in_its_own_term_whatever_a_process_says_of_another",
    ),
    # what turns share with Python
    "report_of_this_term_outlives_one_of_an_older": _of_a_turn(
        "cluster.consensus.quorum",
        "and term_id <= leadership[LEADERSHIP_TERM_ID]:",
        "and term_id == leadership[LEADERSHIP_TERM_ID]:",
        "consensus/test_established.py::test_who_reports_of_an_older_term_has_lost_what_it_said_of_this_one",
    ),
    "marks_of_both_slots_in_one_page": _of_a_turn(
        "cluster.archive.proof_slots",
        "return (proof[SEQUENCE] & 1) * PAGE + MARK_OFFSET",
        "return MARK_OFFSET",
        "archive/test_single_frames.py::test_what_is_asked_of_the_disk_in_which_order",
    ),
    "slot_said_again_with_another_checksum": _of_a_turn(
        "cluster.archive.proof_slots",
        "    proof[DATA_CRC] = crc\n",
        "",
        "archive/test_single_frames.py::test_what_is_asked_of_the_disk_in_which_order",
    ),
}
