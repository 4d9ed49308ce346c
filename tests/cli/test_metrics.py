"""A member's metrics and pages, made of the directory of one that runs and of one that does not."""

import asyncio
import json
import re

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from cluster.archive.directory_lock import DirectoryLock
from cluster.archive.files import OsFiles
from cluster.cli import status_document
from cluster.cli.http_port import HttpRequest
from cluster.cli.metrics import OF_MEMBER, metrics_text
from cluster.cli.metrics_process import MetricsPages
from cluster.consensus.context import ConsensusModuleContext
from cluster.counters import CountersFile
from cluster.member.counters import MemberCounters
from cluster.node import config_text
from cluster.protocol.counter_types import BUCKETS_NS
from cluster.protocol.counter_types import CounterTypeId as Id
from cluster.protocol.mark_file import CLUSTER_MARK_FILE_NAME
from cluster.security import reader_admission
from cluster.security.loading import load_security
from cluster.security.principals import put, token_digest
from cluster.security.reader_admission import ReaderAdmission
from cluster.transport.clock import epoch_ms
from tests.archive.logs import a_log
from tests.archive.members import live_counters, write_member
from tests.cli.answers import ANSWER
from tests.tree import ROOT

PAGE = (ROOT / "docs" / "monitoring.md").read_text()
LIMITS = {"cluster_sessions": 10, "cluster_connections": 10}
TOKEN = b"secret-of-%s-0123456789abcdef"


def pages_of(directory, **keys) -> MetricsPages:
    config = config_text.load(overrides={"dir": str(directory), **keys}, environment={})
    security = load_security(config, pytest.fail, lambda *_: None)
    return MetricsPages(config, ReaderAdmission(security, lambda: None))


def get(pages: MetricsPages, target: str, **headers: str):
    path, _, query = target.partition("?")
    return asyncio.run(pages.answer(HttpRequest("GET", path, query, headers, "127.0.0.1", None)))


def shown(file: CountersFile) -> list[dict]:
    """Counters as a member's document has them."""
    return [
        {"id": c.counter_id, "typeId": c.type_id, "label": c.label, "value": c.value} for c in file.counters()
    ]


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


def test_status_asks_the_others_though_the_member_beside_says_nothing(tmp_path, monkeypatch):
    asked = {}
    monkeypatch.setattr(
        status_document,
        "ask_members",
        lambda known, _: asked.update(known) or {1: ANSWER.replace(member_id=1)},
    )
    write_member(tmp_path / "m", a_log(5))
    members = [f"{i},127.0.0.1:90{i}0,127.0.0.1:90{i}2,a:3,a:4,a:5" for i in range(2)]
    document = json.loads(get(pages_of(tmp_path / "m", members=members), "/status").body)
    assert [(member["memberId"], member["isAlive"]) for member in document["members"]] == [
        (0, False),
        (1, True),
    ]
    assert [str(endpoint) for endpoint in asked.values()] == ["tcp:127.0.0.1:9011"]


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


def test_whom_a_member_is_too_busy_to_ask_for_is_not_called_a_stranger(member, tmp_path, monkeypatch):
    monkeypatch.setattr(reader_admission, "ASKED_MAX", 0)
    put(str(tmp_path / "principals"), "alice", token_digest(TOKEN % b"alice"))
    pages = pages_of(member[0], authenticator="token", authenticator_file=str(tmp_path / "principals"))
    response = get(pages, "/metrics")
    assert (response.status, response.body) == (503, b"too many readers ask at once\n")
    assert "WWW-Authenticate" not in response.headers


def test_every_series_is_in_the_page_and_no_other():
    file = CountersFile.in_memory()
    MemberCounters(file, ConsensusModuleContext(member_ids=(0, 1, 2)))
    for type_id in (Id.CONTAINER_ERRORS, Id.CONTAINER_MAX_CYCLE_TIME, Id.SERVICE_STANDSTILL):
        file.allocate_cluster_counter(type_id, 0, service_id=0)
    file.allocate_cluster_counter(Id.CONTAINER_CYCLE_TIME_EXCEEDED, 0, service_id=0, threshold_ns=1)
    member = {
        "memberId": 0, "isAlive": True, "waitsFor": [], "counters": shown(file),
        **{key: 0 for key, *_ in OF_MEMBER.values()},
        "consumers": [{"group": "g", "bytesBehind": 1}],
        **dict.fromkeys(("snapshotTime", "certificateEnds"), "2026-01-31T12:00:00+00:00"),
    }  # fmt: skip
    text, _ = metrics_text(member, {"version": "1"}, LIMITS, None)
    series = {sample.name for family in parse(text.decode()) for sample in family.samples}
    made = {re.sub(r"_seconds_(bucket|sum|count)$", "_seconds", name) for name in series}
    assert set(re.findall(r"^\| `(cluster_\w+)` \|", PAGE, re.MULTILINE)) == made
    assert 'cluster_link_up{peer="2"}' in text.decode()


def test_a_histogram_counts_each_time_in_one_bucket_and_adds_up_to_the_sum():
    file = CountersFile.in_memory()
    histogram = MemberCounters(file, ConsensusModuleContext()).sync_time
    times = [0, BUCKETS_NS[0], BUCKETS_NS[0] + 1, BUCKETS_NS[-1], 3 * BUCKETS_NS[-1]]
    for time_ns in times:
        histogram.count(time_ns)
    member = {"memberId": 0, "isAlive": True, "waitsFor": [], "counters": shown(file)}
    text = metrics_text(member, {"version": "1"}, LIMITS, None)[0].decode()
    found = {
        s.name + str(s.labels): s.value for f in parse(text) for s in f.samples if "sync_seconds" in s.name
    }
    counts = [value for name, value in found.items() if "_bucket" in name]
    assert counts == [2, *[3] * (len(BUCKETS_NS) - 2), 4, 5]
    assert found["cluster_sync_seconds_sum{}"] == pytest.approx(sum(times) / 1e9)
