"""Every example of a command's help runs: what looks at a directory, over one of a real cluster."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.cli.main import main
from tests.cli.command_lines import command_lines
from tests.docs.texts import exists
from tests.node.forked import Forked
from tests.reader.real import a_copy, remove_unpacked

pytestmark = pytest.mark.timeout(300)  # a hundred seeds of a service are among them

README = "tests/docs/test_texts.py::test_the_readme_works_as_it_stands"
UP = "tests/node/test_up.py::"
COMMANDS = "tests/client/test_commands.py::"
ARCHIVE = "tests/cli/test_archive.py::"
SNAPSHOTS = "tests/node/test_snapshots.py::"
LONG = (
    "cluster sim echo --seeds 2",
    "cluster story --seed 17 --out story.html",
    "cluster sim --seed 4 echo --story story.html",
)
SILENT = ("cluster archive delete-orphaned-segments",)  # where there is nothing to delete
ADMINISTRATORS = (
    "tests/security/test_administrators.py::"
    "test_who_has_the_right_to_administer_does_what_a_tool_in_the_directory_does"
)
BACKUPS = "tests/backup/test_drill.py::"
# What needs running members or another log: how it begins, and the test that runs it.
ELSEWHERE = {
    "cluster up": UP + "test_what_runs_is_said_with_a_command_that_works",
    "cluster snapshot": README,
    "cluster new": "tests/cli/test_new.py::test_a_new_service_passes_the_test_that_comes_with_it",
    "cluster demo": "tests/cli/test_demo.py::test_nothing_is_lost_or_doubled_when_the_leader_is_killed",
    "cluster node --check": "tests/cli/test_node_check.py::"
    "test_each_key_is_shown_with_its_value_and_the_place_that_it_is_from",
    "cluster format": "tests/cli/test_format.py::"
    "test_a_directory_is_formatted_once_for_one_cluster_and_starts_as_that",
    "cluster certs renew": "tests/cli/test_certs.py::"
    "test_renewal_keeps_names_hosts_and_uses_and_gives_new_keys_and_days",
    "cluster bundle": "tests/cli/test_bundle.py::"
    "test_a_bundle_describes_each_member_in_files_that_programs_read",
    "cluster node": UP + "test_a_member_that_died_is_started_again_by_its_own_file",
    "CLUSTER_MAX_SESSIONS=": "tests/node/test_config.py::"
    "test_the_environment_wins_over_the_file_and_an_option_over_both",
    "echo hello | cluster send": README,
    "export CLUSTER_ENDPOINTS=": README,
    "cluster send --no-wait": COMMANDS + "test_no_wait_prints_nothing_and_ends_when_all_is_committed",
    "cluster send --endpoints tcp:": COMMANDS + "test_a_file_is_sent_whole",
    "D=cluster-data": COMMANDS + "test_records_are_sent_and_printed_behind_their_lengths",
    "cluster send --endpoints ipc:": COMMANDS + "test_records_are_sent_and_printed_behind_their_lengths",
    "CLUSTER_CLIENT_AERON_DIR=": "tests/interop/test_we_write_into_a_running_cluster.py::"
    "test_each_message_is_in_the_log_once_when_the_leader_is_killed",
    "cluster principal add --file passwords": "tests/security/test_sessions_of_members.py::"
    "test_whose_password_fits_comes_in_and_others_do_not",
    "cluster service": "tests/node/test_service_processes.py::"
    "test_a_service_can_be_started_by_hand_and_one_process_at_a_time_runs_it",
    "cluster aeron driver": "tests/cli/test_aeron.py::"
    "test_a_driver_runs_in_place_of_the_command_with_its_settings",
    "cluster sim --seeds 1000": "tests/cli/test_sim.py::test_messages_come_from_a_file_or_a_function",
    "cluster sim --seed 17": "tests/cli/test_sim.py::"
    "test_what_goes_by_hashes_is_found_and_the_command_that_is_printed_shows_what_happened_again",
    "cluster bench": COMMANDS + "test_bench_counts_what_comes_back",
    "cluster live": "tests/cli/test_live.py::test_a_stopped_directory_becomes_a_story_which_is_served_whole",
    "cluster events": "tests/cli/test_events.py::test_lines_of_all_members_stand_in_the_order_of_time",
    "cluster status --dir backup": BACKUPS
    + "test_a_backup_over_tls_is_made_of_a_member_that_its_authority_vouches_for",
    "cluster status --consensus-endpoints": "tests/cli/test_status.py::"
    "test_a_real_cluster_has_the_same_verdict_and_document",
    "cluster status": UP
    + "test_three_members_take_messages_over_every_medium_and_start_again_over_their_directories",
    "cluster top --dir cluster-data": README,
    "cluster top --endpoints": README,
    "cluster top --dir backup": BACKUPS
    + "test_a_backup_over_tls_is_made_of_a_member_that_its_authority_vouches_for",
    "cluster log tail --follow": README,
    "cluster log tail -n 100 --follow": README,
    "cluster tool list-members --consensus-endpoints": "tests/cli/test_tool.py::"
    "test_list_members_asks_a_real_cluster_over_its_own_medium",
    "cluster log tail --consensus-endpoints": "tests/cli/test_log.py::"
    "test_a_real_cluster_that_runs_is_read_by_its_consensus_endpoints",
    "cluster log tail --aeron-archive": "tests/cli/test_log.py::"
    "test_a_recording_of_an_archive_is_printed_fragment_by_fragment",
    "cluster log dump --endpoints": "tests/reader/test_remote.py::"
    "test_every_medium_gives_what_the_directory_gives",
    "cluster log dump --cluster-dir": "tests/reader/test_directory.py::"
    "test_directories_that_lie_apart_are_given_apart",
    "cluster job tables": "tests/docs/test_spark_docs.py::test_the_example_of_a_jobs_help_runs_as_it_stands",
    "cluster backup --consensus-endpoints": "tests/interop/test_we_back_up_a_running_cluster.py::"
    "test_a_backup_of_a_running_cluster_has_its_log_and_snapshots_and_real_tools_accept_it",
    "cluster backup": BACKUPS + "test_the_drill",
    "CLUSTER_ENDPOINTS=10.0.0.1": BACKUPS + "test_an_environment_variable_wins_over_the_file",
    "cluster tool backup-query": BACKUPS + "test_the_drill",
    "cluster tool backup-metrics": BACKUPS + "test_the_drill",
    "cluster tool restore": BACKUPS + "test_the_drill",
    "cluster tool pid": README,
    "cluster archive pid": ARCHIVE + "test_the_number_of_one_that_runs_is_printed_alone",
    "cluster tool promote": "tests/docs/test_backup_docs.py::test_a_backup_is_promoted_by_the_page",
    "cluster tool close-member": "tests/docs/test_operations_docs.py::test_members_are_changed_by_the_page",
    "cluster tool make-members": "tests/docs/test_operations_docs.py::test_members_are_changed_by_the_page",
    "cluster tool accept-data-loss": "tests/cli/test_accept_data_loss.py::"
    "test_accept_data_loss_names_the_member_and_leaves_a_note",
    "cluster tool is-leader": "tests/cli/test_tool.py::test_is_leader_tells_by_its_status",
    "cluster tool list-members": SNAPSHOTS + "test_a_follower_refuses_and_names_its_leader",
    "cluster tool snapshot": README,
    "cluster tool suspend": README,
    "cluster tool resume": README,
    "cluster tool standby-snapshot": ADMINISTRATORS,
    "cluster tool replicate-standby-snapshot": ADMINISTRATORS,
    "cluster tool validate-recording-log": ADMINISTRATORS,
    "cluster tool consumers": "tests/cli/test_consumers.py::test_groups_are_shown_with_what_lies_behind_them",
    "cluster tool forget-lanes": "tests/security/test_administrators.py::"
    "test_who_may_administer_forgets_lanes_that_are_finished",
    "cluster tool lanes": "tests/cli/test_lanes.py::"
    "test_lanes_are_shown_with_their_rows_by_application_and_partition",
    "cluster tool transfer-leadership": "tests/node/test_leadership_transfer.py::"
    "test_sessions_stay_open_and_all_that_is_sent_is_committed",
    "cluster restart": "tests/node/test_restart.py::test_a_rolling_restart_ends_no_session_and_loses_nothing",
    "cluster tool shutdown": SNAPSHOTS + "test_a_shutdown_ends_the_member_in_order_behind_a_snapshot",
    "cluster tool abort": "tests/member/test_ending.py::"
    "test_an_abort_ends_all_members_at_the_leaders_end_and_appends_nothing",
    "cluster archive purge": ARCHIVE + "test_purge_drops_whole_segments_that_a_snapshot_stands_for",
    "cluster archive mark-valid": ARCHIVE + "test_marks_only_switch_between_valid_and_invalid",
    "cluster archive verify --dir member-0 --all --checksum": ARCHIVE
    + "test_verify_finds_a_flipped_payload_byte_once_there_are_checksums",
}


def examples() -> list[str]:
    """The command lines under ``Example`` in the help of each command and verb."""
    found: list[str] = []
    for words in [["log"], ["tool"], ["archive"], *command_lines()]:
        help_text = io.StringIO()
        with contextlib.redirect_stdout(help_text):
            assert main([*words, "--help"]) == 0
        _, _, after = help_text.getvalue().partition("\n  Example")
        lines = re.findall(r"^    ([^{\s].*)$", after, re.MULTILINE)
        assert lines, f"the help of {words} has no example"
        found += lines
    return list(dict.fromkeys(found))


def elsewhere(line: str) -> str | None:
    return next((test for start, test in ELSEWHERE.items() if line.startswith(start)), None)


@pytest.fixture(scope="module", autouse=True)
def _unpacked() -> Iterator[None]:
    yield
    remove_unpacked()


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(line, marks=pytest.mark.slow) if line in LONG else line
        for line in examples()
        if elsewhere(line) is None
    ],
)
def test_an_example_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    (tmp_path / "member-0").symlink_to(a_copy(tmp_path / "cluster-data"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(  # tests/cli/test_sim.py has it start interpreters
        "cluster.cli.sim._worker", lambda hash_seed, command: Forked(["cluster.testing.worker", *command])
    )

    program, *arguments = shlex.split(line)

    assert (program, main(arguments)) == ("cluster", 0), capsys.readouterr().err
    assert (capsys.readouterr().out == "") == line.startswith(SILENT)


@pytest.mark.parametrize("test", sorted(set(ELSEWHERE.values())))
def test_what_runs_elsewhere_does(test: str) -> None:
    assert exists(test)


@pytest.mark.parametrize("words", ["sim SERVICE", "job [NAME]", "archive describe [RECORDING]"])
def test_usage_lines_show_arguments_in_capitals(capsys: pytest.CaptureFixture[str], words: str) -> None:
    *command, argument = words.split()
    assert main([*command, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"Usage: cluster {' '.join(command)} [OPTIONS] {argument}\n")
