"""The README and ``docs/``, copied line by line into an empty directory, do what they say."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator

import pytest

from tests.docs.shell import UP, Terminal
from tests.docs.texts import ROOT, Step, exists, steps
from tests.node.processes import await_that, run

TEXTS = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]

ENTRIES = r"( +\d+ +\d+ term \d+ \S+Z [A-Z_]+.*\n)+"
# What each command of the README prints, in its order. GOES_ON ends by Ctrl-C.
PRINTS = {
    ". .venv/bin/activate": "",
    "cluster up": UP.format("echo", "cluster-data"),
    "echo hello | cluster send --endpoints 127.0.0.1:9000": "hello\n",
    "cluster log tail": ENTRIES,
    "cluster log tail --follow": ENTRIES,
    "cluster log dump --json --payload utf8": r'(?s).*"SESSION_MESSAGE".*"payload": "hello".*',
    "cluster log export log.parquet": r"\d+ entries in log.parquet\n",
    "cluster tool describe": r"(?s)component .*CONSENSUS_MODULE .*CONTAINER .*",
    "cluster snapshot": r"\[\d\] SNAPSHOT completed\n",
    "cluster archive verify --dir cluster-data/member-0": r"(\(recordingId=\d+\) OK\n)+",
    "cluster top --once": r"(?s).*member .*LEADER.*",
    "cluster status": r"(?s)healthy: 3 members, member \d leads, .*",
    "export CLUSTER_ENDPOINTS=tcp:127.0.0.1:9001,tcp:127.0.0.1:9011,tcp:127.0.0.1:9021": "",
    "cluster bench --json": r'\{"transport": "tcp", .*"latencyUs": .*\}\n',
    "kill -9 $(cluster tool pid --dir cluster-data/member-1)": "",
    "cluster node --config cluster-data/member-1/node.toml": r"member 1: 127.0.0.1:9010\n",
    "cluster tool suspend --dir cluster-data": r"\[\d\] SUSPEND completed\n",
    "cluster tool resume --dir cluster-data": r"\[\d\] RESUME completed\n",
    "cluster up --dir c2 --service greeter:Greeter": UP.format("greeter:Greeter", "c2"),
    "python first.py": r"(?s)0 NEW_LEADERSHIP_TERM .*\d+ SESSION_MESSAGE b'hello'\n.*",
    "python greet.py": r"b'hello world'\n",
}
GOES_ON = ("cluster up", "cluster node", "cluster log tail --follow")
QUICKER = {"cluster bench --json": " --duration 1 --warm-up 0.2"}  # ten seconds of load otherwise

# What takes long, or more than one host, and the test that runs it.
JOBS = "tests/jobs/test_jobs_on_a_log.py::"
SECURITY = "tests/docs/test_security_docs.py::test_the_recipe_lets_in_whom_it_names_and_nobody_else"
STATUS = (
    "tests/node/test_up.py::"
    "test_three_members_take_messages_over_every_medium_and_start_again_over_their_directories"
)
ELSEWHERE = {
    "cluster tool backup-metrics": "tests/backup/test_drill.py::test_the_drill",
    "cluster certs renew": "tests/cli/test_certs.py::"
    "test_renewal_keeps_names_hosts_and_uses_and_gives_new_keys_and_days",
    "cluster format": "tests/cli/test_format.py::"
    "test_a_directory_is_formatted_once_for_one_cluster_and_starts_as_that",
    "cluster principal add --file tokens feed --secret-file feed.new": "tests/security/test_files.py::"
    "test_two_secrets_of_a_principal_are_good_until_the_next_is_put_alone",
    "cluster restart --endpoints": "tests/faults/test_restart_from_afar.py::"
    "test_members_of_any_hosts_take_another_version_of_a_service_and_clients_lose_and_double_nothing",
    "cluster certs --dir certs": "tests/cli/test_certs.py::"
    "test_a_member_has_its_name_and_hosts_and_a_client_its_principal",
    "cluster status --dir cluster-data": STATUS,
    "cluster status --endpoints": STATUS,
    "cluster status --wait": STATUS,
    "cluster events --endpoints": "tests/cli/test_events.py::test_members_elsewhere_have_the_same_story",
    "cluster events --dir": "tests/cli/test_events.py::test_lines_of_all_members_stand_in_the_order_of_time",
    "cluster node --check": "tests/cli/test_node_check.py::"
    "test_each_key_is_shown_with_its_value_and_the_place_that_it_is_from",
    "kill -HUP": "tests/node/test_reload.py::test_a_member_takes_what_changed_when_it_gets_the_signal",
    "docker ": "tests/node/test_deploy.py::"
    "test_the_image_is_built_of_what_there_is_and_runs_as_nobody_in_particular",
    "kubectl ": "tests/node/test_deploy.py::test_the_parts_of_the_stateful_set_fit_together",
    "cluster bundle": "tests/cli/test_bundle.py::"
    "test_a_bundle_has_no_secret_no_message_and_nothing_that_services_print",
    "cluster bench --endpoints": "tests/client/test_commands.py::test_bench_counts_what_comes_back",
    "cluster principal add": SECURITY,
    "printf '": SECURITY,
    "cluster node --config node.toml &": SECURITY,
    "echo hello | cluster send --endpoints 127.0.0.1:9000 --token-file": SECURITY,
    "cluster log dump --endpoints 127.0.0.1:9000 --payload utf8 --token-file": SECURITY,
    "cluster tool accept-data-loss": "tests/cli/test_accept_data_loss.py::"
    "test_accept_data_loss_names_the_member_and_leaves_a_note",
    "cluster restart --dir": "tests/node/test_restart.py::"
    "test_a_rolling_restart_ends_no_session_and_loses_nothing",
    "cluster tool snapshot --endpoints db0": "tests/security/test_administrators.py::"
    "test_who_has_the_right_to_administer_does_what_a_tool_in_the_directory_does",
    "cluster up --members 3 --dir c1 --set log_bytes_max": "tests/node/test_bounded_log.py::"
    "test_members_at_full_speed_keep_within_the_bound_and_lose_nothing",
    "cluster demo": "tests/cli/test_demo.py::test_nothing_is_lost_or_doubled_when_the_leader_is_killed",
    "make demo": "tests/jobs/test_demo.py::"
    "test_the_demo_counts_the_same_from_three_sides_and_says_nothing_else",
    "make test": "tests/test_tidy.py::test_imports_point_down_the_layers",
    "cluster job respond": "tests/jobs/test_respond.py::"
    "test_each_message_is_answered_once_and_a_restart_answers_only_what_is_new",
    "cluster job ": JOBS + "test_a_job_runs_as_a_module_and_says_only_what_a_person_wants",
    "SPARK_CONF_DIR=conf spark-submit": JOBS + "test_a_job_runs_under_spark_submit",
    "cluster node --config member-2.toml": "tests/node/test_up.py::"
    "test_a_member_that_died_is_started_again_by_its_own_file",
}
# Texts whose blocks have a test of their own.
OWN_TESTS = (
    "docs/aeron.md",
    "docs/backup.md",
    "docs/clients.md",
    "docs/replay.md",
    "docs/services.md",
    "docs/spark.md",
    "docs/tables.md",
    "docs/tutorial.md",
)


def elsewhere(step: Step) -> str | None:
    return next((test for start, test in ELSEWHERE.items() if step.text.startswith(start)), None)


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    made = Terminal(tmp_path_factory.mktemp("empty"))
    yield made
    made.close()


def prepare(terminal: Terminal, step: Step) -> None:
    """What a person does or sees before typing the line."""
    if step.text.startswith("cluster up --dir c2"):
        terminal.interrupt("cluster up")  # its ports are wanted again
    if step.text.startswith(("cluster tool ", "cluster snapshot ")):
        state = "SUSPENDED" if " resume " in step.text else "ACTIVE"
        await_that(lambda: has_leader(terminal, state), f"a leader that is {state}")


def has_leader(terminal: Terminal, state: str) -> bool:
    top = run("top", "--dir", str(terminal.directory / "cluster-data"), "--once", "--json")
    members = json.loads(top.stdout)["members"]
    return any(member["role"] == "LEADER" and member["moduleState"] == state for member in members)


README = [step for step in steps("README.md") if elsewhere(step) is None]
(FOR_SPARK,) = (step for step in README if step.file == "block.py")  # starts a JVM


@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    "step", [step for step in README if step != FOR_SPARK], ids=lambda step: step.text.splitlines()[0]
)
def test_the_readme_works_as_it_stands(terminal: Terminal, step: Step) -> None:
    if step.file:
        (terminal.directory / step.file).write_text(terminal.here(step.text))
        return
    expected = terminal.here(PRINTS[step.text])
    prepare(terminal, step)
    if step.text.startswith(GOES_ON):
        printed = terminal.start(step.text, expected)
        if " tail " in step.text:
            terminal.interrupt(step.text)
    else:
        printed = terminal.run(step.text + QUICKER.get(step.text, ""))
    assert re.fullmatch(expected, printed), printed


@pytest.mark.slow  # tests/spark reads the same in the session that all share
@pytest.mark.timeout(200)
def test_the_readmes_block_for_spark_works_as_it_stands(terminal: Terminal) -> None:
    begin, send = "cluster up", "echo hello | cluster send --endpoints 127.0.0.1:9000"
    terminal.run(". .venv/bin/activate")
    terminal.start(begin, terminal.here(PRINTS[begin]))
    terminal.run(send)
    (terminal.directory / FOR_SPARK.file).write_text(terminal.here(FOR_SPARK.text))

    printed = terminal.run(f"python {FOR_SPARK.file}")

    assert re.search(r"SESSION_MESSAGE\|[^|]*\| *hello\|", printed), printed


@pytest.mark.parametrize("document", TEXTS)
def test_no_command_and_no_block_of_a_text_is_left_out(document: str) -> None:
    for step in steps(document):
        run_here = document == "README.md" and (step.file or step.text in PRINTS)
        assert run_here or document in OWN_TESTS or elsewhere(step), f"no test runs {step.text!r}"


def test_the_readme_installs_extras_that_there_are() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(rf"pip install \"{project['name']}\[(.*?)\]", (ROOT / "README.md").read_text())
    assert named and set(named) <= set(project["optional-dependencies"])


@pytest.mark.parametrize("test", sorted(set(ELSEWHERE.values())))
def test_what_runs_elsewhere_does(test: str) -> None:
    assert exists(test)
