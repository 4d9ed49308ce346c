"""A member's metrics and pages, made of the directory of one that runs and of one that does not."""

import asyncio
import json
import re

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from cluster.archive import OsFiles
from cluster.archive.directory_lock import DirectoryLock
from cluster.cli.http_port import Request
from cluster.cli.metrics import COUNTERS, GAUGES, OF_MEMBER
from cluster.cli.metrics_process import MetricsPages
from cluster.node import config_text
from cluster.protocol.counter_types import TEXTS, Scope
from cluster.protocol.counter_types import CounterTypeId as Id
from cluster.protocol.mark_file import CLUSTER_MARK_FILE_NAME
from cluster.security.loading import load_security
from cluster.security.principals import put, token_digest
from cluster.security.reader_admission import ReaderAdmission
from cluster.transport.clock import epoch_ms
from tests.archive.logs import a_log
from tests.archive.members import live_counters, write_member
from tests.tree import ROOT

PAGE = (ROOT / "docs" / "monitoring.md").read_text()
TOKEN = b"secret-of-%s-0123456789abcdef"


def pages_of(directory, **keys) -> MetricsPages:
    config = config_text.load(overrides={"dir": str(directory), **keys}, environment={})
    security = load_security(config, pytest.fail, lambda *_: None)
    return MetricsPages(config, ReaderAdmission(security, lambda: None))


def get(pages: MetricsPages, target: str, **headers: str):
    path, _, query = target.partition("?")
    return asyncio.run(pages.answer(Request("GET", path, query, headers, "127.0.0.1", None)))


def samples(pages: MetricsPages, target: str = "/metrics") -> dict[str, float]:
    """The values of a page by series, with their labels."""
    text = get(pages, target).body.decode()
    found = [sample for family in parse(text) for sample in family.samples]
    return {f"{s.name}{s.labels or ''}": s.value for s in found if not s.name.startswith("process_")}


@pytest.fixture
def member(tmp_path):
    """The directory of a member that leads alone, and its counters."""
    write_member(tmp_path / "m", a_log(50), is_clean=False)
    with live_counters(tmp_path / "m") as counters:
        lock = DirectoryLock.take(OsFiles(), str(tmp_path / "m/cluster"), CLUSTER_MARK_FILE_NAME, epoch_ms())
        yield tmp_path / "m", counters
        lock.release()


def test_a_member_that_leads_shows_what_its_counters_and_files_have(member):
    directory, counters = member
    counters.find(Id.COMMIT_POSITION).set(commit := a_log(40).position)
    found = samples(pages_of(directory))
    assert (found["cluster_member_up"], found["cluster_member_ready"], found["cluster_leading"]) == (1, 1, 1)
    assert found["cluster_commit_position_bytes"] == commit
    assert found["cluster_log_bytes"] == a_log(50).position
    assert found["cluster_disk_size_bytes"] > found["cluster_disk_free_bytes"] > 0
    [build] = [name for name in found if name.startswith("cluster_build_info")]
    assert "'member_id': '0'" in build and "version" in build


def test_every_counter_is_shown_on_demand_alone(member):
    directory, counters = member
    pages = pages_of(directory)
    found = samples(pages, "/metrics?all")
    count = sum(record.is_allocated for record in counters.counters())
    assert sum(name.startswith("cluster_counter{") for name in found) == count
    assert not any(name.startswith("cluster_counter{") for name in samples(pages))


def test_open_metrics_is_spoken_where_it_is_asked_for(member):
    directory, _ = member
    response = get(pages_of(directory), "/metrics", accept="application/openmetrics-text; version=1.0.0")
    assert response.content_type.startswith("application/openmetrics-text")
    assert {family.name for family in parse_openmetrics(response.body.decode())} > {"cluster_sessions"}


def test_a_member_that_waits_is_alive_and_not_ready_and_says_for_whom(member):
    directory, counters = member
    awaited = counters.allocate_cluster_counter(Id.AWAITED_MEMBERS, 0)
    pages = pages_of(directory)
    assert (get(pages, "/readyz").status, get(pages, "/livez").status) == (200, 200)
    awaited.set(0b110)

    pages = pages_of(directory)
    response = get(pages, "/readyz")

    assert (response.status, get(pages, "/livez").status) == (503, 200)
    assert b"waits for members 1, 2" in response.body
    assert samples(pages)["cluster_member_ready"] == 0


def test_a_member_without_turns_shows_that_and_what_its_files_have(tmp_path):
    write_member(tmp_path / "m", a_log(50))
    pages = pages_of(tmp_path / "m")
    found = samples(pages)
    assert (found["cluster_member_up"], found["cluster_log_bytes"]) == (0, a_log(50).position)
    assert "cluster_has_leader" not in found
    assert get(pages, "/readyz").status == 503


def test_status_is_the_document_of_the_command(member):
    directory, _ = member
    response = get(pages_of(directory), "/status")
    document = json.loads(response.body)
    assert (document["v"], document["verdict"], document["cluster"]["leader"]) == (1, "healthy", 0)
    assert response.content_type == "application/json"
    assert get(pages_of(directory), "/nothing").status == 404


def test_where_rights_are_on_it_takes_the_right_to_read_and_probes_learn_no_reasons(member, tmp_path):
    directory, counters = member
    counters.allocate_cluster_counter(Id.AWAITED_MEMBERS, 0, 0b10)
    (tmp_path / "rights").write_text("alice: read\n")
    for name in ("alice", "bob"):
        put(str(tmp_path / "principals"), name, token_digest(TOKEN % name.encode()))
    keys = {"authenticator": "token", "authenticator_file": str(tmp_path / "principals")}
    pages = pages_of(directory, authorisation=str(tmp_path / "rights"), **keys)
    bearer = {name: f"Bearer {(TOKEN % name.encode()).decode()}" for name in ("alice", "bob")}

    stranger = get(pages, "/metrics")
    assert (stranger.status, stranger.headers["WWW-Authenticate"]) == (401, 'Bearer realm="cluster"')
    assert get(pages, "/metrics", authorization=bearer["bob"]).status == 403
    assert get(pages, "/metrics", authorization=bearer["alice"]).status == 200
    assert get(pages, "/status").status == 401
    assert get(pages, "/readyz").body == b"not ready\n"
    assert b"waits" in get(pages, "/readyz", authorization=bearer["alice"]).body


def test_every_series_is_in_the_page_and_no_other(member):
    directory, counters = member
    for type_id in {found[0] for found in (*GAUGES.values(), *COUNTERS.values())}:
        if counters.find(type_id) is None:
            of = {"service_id": 0} if TEXTS[type_id].scope is Scope.SERVICE else {}
            threshold = {"threshold_ns": 1} if TEXTS[type_id].has_threshold else {}
            counters.allocate_cluster_counter(type_id, 0, **of, **threshold)
    shown = {name.partition("{")[0] for name in samples(pages_of(directory))} | set(OF_MEMBER)
    of_some = {f"cluster_{name}" for name in ("certificate_end_seconds", "snapshot_time_seconds")}
    assert set(re.findall(r"^\| `(cluster_\w+)` \|", PAGE, re.MULTILINE)) == shown | of_some | {
        "cluster_group_lag_bytes"
    }
