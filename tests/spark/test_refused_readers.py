"""Who may not read, or not write, is answered with the reason at the first question, and not tried again."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from cluster import ClusterNode
from cluster.errors import AuthenticationRejected, ClusterError
from cluster.security.principals import put, token_digest
from spark_connector.options.cluster_options import SinkOptions, SourceOptions
from spark_connector.sink.writers import ClusterBatchWriter
from spark_connector.source.readers import ClusterBatchReader, ClusterStreamReader
from tests.node.processes import await_that, endpoints_of, keys_of

TOKENS = {"alice": b"of-alice-a-token", "bob": b"of-bob-another-one", "eve": b"of-nobody-a-token"}
ENDLESS_MS = str(3_600_000)  # who is tried until this is over never comes back


@pytest.fixture(scope="module")
def member(tmp_path_factory):
    """Alice may read and write, bob may read; eve is not known."""
    folder = tmp_path_factory.mktemp("member")
    for name, token in TOKENS.items():
        (folder / f"{name}.token").write_bytes(token)
    for name in ("alice", "bob"):
        put(str(folder / "known"), name, token_digest(TOKENS[name]))
    (folder / "rights").write_text("alice: write, read\nbob: read\n")
    keys = {"authenticator_file": str(folder / "known"), "authorisation": str(folder / "rights")}
    with ClusterNode.launch(**keys_of(folder, authenticator="token", **keys)) as node:
        await_that(lambda: node.is_leader, "it leads")
        node.folder = folder
        yield node


def given(member, medium, name, timeout):
    return {
        "endpoints": endpoints_of(member, medium),
        "authTokenFile": str(member.folder / f"{name}.token"),
        timeout: ENDLESS_MS,
    }


def write(options):
    writer = ClusterBatchWriter(SinkOptions.parse(options))
    return writer.write(iter([pa.record_batch({"payload": pa.array([b"a"])})]))


def read(options):
    reader = ClusterBatchReader(SourceOptions.parse(options), ("position",))
    return sum(batch.num_rows for task in reader.partitions() for batch in reader.read(task))


def follow(options):
    reader = ClusterStreamReader(SourceOptions.parse(options), ("position",))
    return reader.latestOffset(reader.initialOffset(), ReadAllAvailable())


@pytest.mark.conformance("P-46")
@pytest.mark.parametrize("medium", ["grpc", "tcp"])
def test_who_is_not_known_is_refused_at_once(member, medium):
    for ask, timeout in (
        (read, "requestTimeoutMs"),
        (follow, "requestTimeoutMs"),
        (write, "commitTimeoutMs"),
    ):
        ask(given(member, medium, "alice", timeout))
        with pytest.raises(AuthenticationRejected, match="authentication"):
            ask(given(member, medium, "eve", timeout))


@pytest.mark.conformance("P-46")
@pytest.mark.parametrize("medium", ["grpc", "tcp"])
def test_who_may_not_do_it_is_refused_at_once(member, medium):
    assert read(given(member, medium, "bob", "requestTimeoutMs")) > 0
    with pytest.raises(ClusterError, match="right to write"):
        write(given(member, medium, "bob", "commitTimeoutMs"))
