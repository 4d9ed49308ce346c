"""Mistakes of a line each in what the simulator does not play: processes, locks, readers, clients, jobs.

Each is planted into a process that has not imported its module yet, and fails the test that is for it.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple


class LineMistake(NamedTuple):
    """``right`` stands once in the text of the module, and ``wrong`` takes its place."""

    module: str
    right: str
    wrong: str
    test: str  # that finds it
    is_compiled: bool = False  # then found with compilation off: what is cached is compiled without it

    def plant(self) -> None:
        """For the rest of this process."""
        if self.is_compiled:
            assert "numba" not in sys.modules
            os.environ["NUMBA_DISABLE_JIT"] = "1"
        assert self.module not in sys.modules, f"{self.module} is imported as it is"
        sys.meta_path.insert(0, self)  # type: ignore[arg-type]

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """As of a finder of modules."""
        spec = PathFinder.find_spec(name, path) if name == self.module else None
        if spec is not None and spec.origin is not None:
            spec.loader = _Changed(self, spec.origin)
        return spec


class _Changed(SourceFileLoader):
    def __init__(self, mistake: LineMistake, path: str) -> None:
        super().__init__(mistake.module, path)
        self._mistake = mistake

    def get_code(self, fullname: str) -> CodeType:
        _, right, wrong, *_ = self._mistake
        text = Path(self.path).read_text()
        assert text.count(right) == 1, f"{fullname} has {right!r} {text.count(right)} times"
        return compile(text.replace(right, wrong), self.path, "exec")


LINE_MISTAKES = {
    # cluster/node: processes
    "started_again_while_all_stop": LineMistake(
        "cluster.node.supervisor",
        " and not self.is_asked_to_stop:\n                    self.start_again",
        ":\n                    self.start_again",
        "node/test_supervisor.py::test_no_member_is_started_again_while_all_are_to_stop",
    ),
    "two_leaders_known": LineMistake(
        "cluster.node.supervisor",
        "                        other.is_leader = False",
        "                        pass",
        "node/test_supervisor.py::test_who_said_last_that_it_leads_is_the_leader",
    ),
    "leader_of_a_minority_waited_for": LineMistake(
        "cluster.node.supervisor",
        "<= len(self.members) // 2",
        "< len(self.members) // 2",
        "node/test_supervisor.py::test_a_leader_without_a_majority_is_told_to_stop_where_it_is",
    ),
    "last_words_not_heard": LineMistake(
        "cluster.node.supervisor",
        "            if pid:\n                for message in member.receive():",
        "            if pid:\n                for message in ():",
        "node/test_supervisor.py::test_what_a_member_says_in_its_last_moment_is_heard",
    ),
    "half_a_line_forgotten": LineMistake(
        "cluster.node.supervisor",
        '*lines, self._received = self._received.split(b"\\n")',
        '(*lines, _), self._received = self._received.split(b"\\n"), b""',
        "node/test_supervisor.py::test_a_line_may_come_in_pieces",
    ),
    "asked_in_place_of_killed": LineMistake(
        "cluster.node.supervisor",
        "os.kill(member.pid, signal.SIGKILL)",
        "os.kill(member.pid, signal.SIGTERM)",
        "node/test_supervisor.py::test_a_member_that_does_not_stop_in_time_is_killed",
    ),
    "output_without_a_bound": LineMistake(
        "cluster.node.supervisor",
        "path.stat().st_size > bytes_max",
        "False",
        "node/test_supervisor.py::test_output_beyond_its_bound_is_kept_apart_while_its_member_goes_on",
    ),
    "pauses_without_a_bound": LineMistake(
        "cluster.node.child",
        "min(2 * self._pause_ns, PAUSE_MAX_NS)",
        "2 * self._pause_ns",
        "node/test_child.py::test_pauses_double_up_to_ten_seconds_and_begin_again_after_a_start_that_went_well",
    ),
    "a_long_life_is_no_better": LineMistake(
        "cluster.node.child",
        "            self._pause_ns = PAUSE_MIN_NS\n        self._due_ns",
        "            pass\n        self._due_ns",
        "node/test_child.py::test_pauses_double_up_to_ten_seconds_and_begin_again_after_a_start_that_went_well",
    ),
    "retired_and_started": LineMistake(
        "cluster.node.child",
        "        self.command = ()",
        "        pass",
        "node/test_child.py::test_one_that_is_retired_is_not_started_again_and_its_end_is_not_told",
    ),
    # cluster/archive: one process a directory
    "own_mark_file_keeps_out": LineMistake(
        "cluster.archive.directory_lock",
        " and header.pid not in _last_owners(files, path)",
        "",
        "archive/test_cluster_files.py::test_a_member_that_was_killed_starts_again_at_once",
    ),
    "owner_of_the_mark_file_forgotten": LineMistake(
        "cluster.archive.directory_lock",
        "        owners.append(header.pid)",
        "        pass",
        "archive/test_directory_lock.py::test_starts_that_fail_before_they_write_a_mark_file_leave_that_of_ours_known",
    ),
    "lock_kept_after_a_refusal": LineMistake(
        "cluster.archive.directory_lock",
        "                lock.release()\n",
        "                pass\n",
        "archive/test_directory_lock.py::test_a_start_that_is_refused_gives_the_lock_back",
    ),
    "pids_not_synced": LineMistake(
        "cluster.archive.directory_lock",
        "        file.datasync()",
        "        pass",
        "archive/test_directory_lock.py::test_who_has_the_lock_is_known_after_a_power_cut",
    ),
    "two_lookers_exclude_each_other": LineMistake(
        "cluster.archive.files",
        "fcntl.LOCK_SH | fcntl.LOCK_NB",
        "fcntl.LOCK_EX | fcntl.LOCK_NB",
        "archive/test_directory_lock.py::test_those_who_look_at_a_free_lock_do_not_keep_each_other_out",
    ),
    # cluster/reader
    "every_reader_takes_the_first": LineMistake(
        "cluster.transport.preference",
        "spread % len(members) if members else 0",
        "0",
        "transport/test_preference.py::test_members_are_asked_in_the_order_of_the_preference",
    ),
    "search_begins_before_its_range": LineMistake(
        "cluster.reader.search",
        "range(begin // term_length + 1,",
        "range(begin // term_length,",
        "reader/test_search.py::test_the_entry_found_is_that_of_a_scan",
    ),
    "overlap_of_files_taken": LineMistake(
        "cluster.reader.exported_log",
        "if following.begin != one.end:",
        "if following.begin > one.end:",
        "reader/test_exported_log.py::test_files_that_do_not_join_on_are_refused_with_their_names",
    ),
    "tail_of_a_stopped_log_is_committed": LineMistake(
        "cluster.reader.extent",
        "stop if stored is None else self._proven_end(stop, stored), stop)",
        "stop, stop)",
        "reader/test_directory.py::test_of_our_member_that_crashed_a_stream_ends_at_what_is_known_to_be_committed",
    ),
    "replaced_counters_believed": LineMistake(
        "cluster.reader.extent",
        " and not counters.is_replaced():",
        ":",
        "reader/test_directory.py::test_a_log_that_goes_on_in_a_new_file_of_the_same_name_is_read_there",
    ),
    "position_beside_a_report_forgotten": LineMistake(
        "cluster.reader.group_reports",
        "                if self._position == position:",
        "                if True:",
        "reader/test_group_reports.py::test_what_is_reached_while_a_report_is_made_is_reported_next",
    ),
    "every_failed_report_told": LineMistake(
        "cluster.reader.group_reports",
        "is_first = self._failure is None",
        "is_first = True",
        "reader/test_group_reports.py::test_a_report_that_raises_anything_is_told_and_made_again",
    ),
    "replay_from_the_begin_told": LineMistake(
        "cluster.reader.standing",
        "end - (log.start_position if last is None else last.log_position)",
        "end - log.start_position",
        "reader/test_standing.py::test_a_start_replays_from_the_newest_snapshot_on_or_all_of_the_log",
    ),
    # cluster/backup
    "snapshot_of_a_failed_attempt_left": LineMistake(
        "cluster.backup.agent",
        "self._retrieval.copy.discard()\n            self._retrieval = None",
        "self._retrieval = None",
        "backup/test_agent.py::test_when_its_supplier_is_killed_another_one_goes_on_and_nothing_is_missing",
    ),
    "commit_position_of_members_goes_back": LineMistake(
        "cluster.backup.agent",
        "known.set(max(known.get(), status.commit_position))",
        "known.set(status.commit_position)",
        "backup/test_promote.py::test_a_backup_says_what_the_members_had_committed_when_it_heard_of_them_last",
    ),
    "snapshot_at_the_end_forgotten": LineMistake(
        "cluster.backup.restore",
        "entry.log_position > recording.append_position",
        "entry.log_position >= recording.append_position",
        "backup/test_restore.py::test_the_log_may_end_earlier_at_the_last_entry_before_a_position",
    ),
    "copy_not_synced": LineMistake(
        "cluster.backup.restore",
        "        written.fullsync()\n",
        "",
        "backup/test_restore.py::test_members_begin_alike_and_stand_for_terms_after_those_of_the_backup",
    ),
    "lost_promises_count": LineMistake(
        "cluster.backup.close",
        "None if is_lost or node_state",
        "None if node_state",
        "backup/test_make.py::test_who_does_not_know_its_promises_or_all_of_its_log_does_not_count",
    ),
    "term_without_an_entry_kept": LineMistake(
        "cluster.backup.copied_log",
        "last.term_base_log_position >= max(self.position, 1)",
        "last.term_base_log_position > max(self.position, 1)",
        "backup/test_agent.py::test_a_term_that_was_named_and_whose_first_entry_was_lost_is_named_again_when_it_comes",
    ),
    # cluster/client
    "claims_take_no_room": LineMistake(
        "cluster.client.window",
        "self._buffered_bytes + self._claimed_bytes + max(",
        "self._buffered_bytes + max(",
        "client/test_claims.py::test_what_is_claimed_is_room_that_others_do_not_get",
    ),
    "acknowledged_though_not_sent": LineMistake(
        "cluster.client.session_conductor",
        "if messages > window.acknowledged and not window.is_sent(messages):",
        "if False:",
        "client/test_sending.py::test_an_acknowledgement_of_what_was_not_sent_ends_the_connection_and_the_session_goes_on",
    ),
    "taken_answers_counted_as_dropped": LineMistake(
        "cluster.client.retained_egress",
        "len(self._batches[0]) - self._rows_taken",
        "len(self._batches[0])",
        "client/test_retained_egress.py::test_answers_that_were_taken_are_not_among_the_dropped",
    ),
    "answers_put_back_count_as_taken": LineMistake(
        "cluster.client.retained_egress",
        "        self._bytes_taken -= batch.payload_bytes\n",
        "",
        "client/test_retained_egress.py::test_messages_that_a_listener_puts_back_still_count",
    ),
    "same_term_asked_again": LineMistake(
        "cluster.client.session_conductor",
        "event.leadership_term_id <= self.leadership_term_id:",
        "event.leadership_term_id < self.leadership_term_id:",
        "client/test_following.py::test_a_leader_that_says_again_that_it_leads_is_asked_nothing",
    ),
    "leader_before_the_last_sent_nothing": LineMistake(
        "cluster.client.window",
        "self._sent_before = self.sent_to_any",
        "self._sent_before = self.sent",
        "client/test_following.py::test_a_leader_may_hold_what_one_before_the_last_was_sent",
    ),
    "seldom_asked_for_the_session": LineMistake(
        "cluster.client.session_conductor",
        "min(max(sought_ns // 2, RESUME_INTERVAL_MIN_NS), RESUME_INTERVAL_MAX_NS)",
        "max(sought_ns // 2, RESUME_INTERVAL_MIN_NS)",
        "client/test_following.py::test_who_lost_its_leader_asks_often_at_first_and_then_every_100_ms",
    ),
    "probe_goes_on_with_the_next_leader": LineMistake(
        "cluster.client.session_conductor",
        "        self._probed_ns = None\n        self._publications.keep",
        "        self._publications.keep",
        "client/test_following.py::test_a_leader_that_is_stopped_and_not_dead_is_left_after_its_heartbeat_timeout",
    ),
    # jobs
    "timer_of_a_snapshot_at_the_entry": LineMistake(
        "jobs.reductions",
        'side="right"',
        'side="left"',
        "jobs/test_reductions.py::test_entries_in_any_order_and_in_any_batches_make_the_same_rows",
    ),
    "close_is_activity": LineMistake(
        "jobs.reductions",
        "pc.if_else(is_close, None, time)",
        "time",
        "jobs/test_reductions.py::test_entries_in_any_order_and_in_any_batches_make_the_same_rows",
    ),
    "restored_position_within_an_entry": LineMistake(
        "jobs.delta_rs",
        "return at if at == aligned(at) else self._reader.boundary_at_or_after(at)",
        "return at",
        "jobs/test_restored_tables.py::test_after_a_restore_delta_rs_goes_on_where_the_restored_rows_end",
    ),
    "own_look_counts_as_unseen": LineMistake(
        "jobs.history",
        "if other.version > seen]",
        "if other.version >= seen]",
        "jobs/test_restored_tables.py::test_a_commit_that_did_not_know_of_what_came_before_it_is_found",
    ),
    "each_batch_is_the_first": LineMistake(
        "jobs.progress",
        "self._first = self._first or (",
        "self._first = (",
        "jobs/test_command.py::test_the_closing_line_tells_the_rate_after_the_first_batch_in_which_spark_starts",
    ),
}
