"""What is read of a real member beside its log: the recordings of a snapshot, whole, and what happened."""

from __future__ import annotations

import numpy as np
import pytest

from cluster import AuthenticationRejected, ClusterClient, ClusterNode
from cluster.archive.files import OsFiles
from cluster.archive.recording_log import RecordingLog
from cluster.protocol import link
from cluster.reader.recordings import open_recording
from cluster.security.principals import put, token_digest
from cluster.transport.endpoint import parse_endpoint
from cluster.transport.event_logs import LOG_NAMES
from cluster.transport.log_client import open_log_client
from tests.node.processes import await_that, endpoints_of, keys_of, tool


def open_client(node, medium, token=b""):
    endpoint = parse_endpoint(endpoints_of(node, medium).removeprefix("0="))
    return open_log_client(endpoint, 5.0, credentials=lambda: token)


def entries_of(node):
    log = RecordingLog.open(str(node.config.cluster_path), files=OsFiles(), write=False)
    log.close()
    return log.entries


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """A member with one snapshot; who has the token of "reader" may read."""
    tmp_path = tmp_path_factory.mktemp("member")
    for name in ("reader", "writer"):
        put(str(tmp_path / "tokens"), name, token_digest(f"token of {name}".encode()))
    (tmp_path / "rights").write_text("reader: read\nwriter: write\n")
    keys = {"authenticator": "token", "authenticator_file": f"{tmp_path}/tokens"}
    with ClusterNode.launch(**keys_of(tmp_path, authorisation=f"{tmp_path}/rights", **keys)) as node:
        await_that(lambda: node.is_leader, "a leader")
        credentials = b"token of writer"
        with ClusterClient.connect(endpoints_of(node, "ipc"), credentials=credentials) as client:
            assert client.offer(b"hello") > 0
            client.await_committed()
        assert tool(node, "snapshot").returncode == 0
        yield node


@pytest.mark.parametrize("medium", ["grpc", "tcp", "ipc"])
def test_the_recordings_of_a_snapshot_are_sent_as_they_are_in_the_files(node, medium):
    client = open_client(node, medium, b"token of reader")
    snapshots = [entry for entry in entries_of(node) if entry.entry_type.name == "SNAPSHOT"]
    assert [entry.service_id for entry in snapshots] == [0, -1]
    for entry in snapshots:
        status, *blocks, end = client.read_recording(entry.recording_id)
        assert isinstance(status, link.RecordingStatus)
        assert (status.recording_id, status.start_position, status.checksum) == (
            entry.recording_id,
            0,
            "crc32c",
        )
        assert (end.code, end.position) == (link.LinkErrorCode.OK, status.stop_position)
        own = open_recording(OsFiles(), str(node.config.archive_path), entry.recording_id)
        assert np.concatenate(blocks).tobytes() == own.read(0, own.append_position).tobytes()
    client.close()


@pytest.mark.parametrize("medium", ["grpc", "tcp", "ipc"])
def test_of_the_log_only_its_terms_and_geometry_are_told_and_of_what_is_not_there_nothing(node, medium):
    client = open_client(node, medium, b"token of reader")
    log_id = next(entry.recording_id for entry in entries_of(node) if entry.entry_type.name == "TERM")
    status, end = client.read_recording(log_id)
    assert [(term.leadership_term_id, term.term_base_log_position) for term in status.terms] == [(0, 0)]
    assert (status.stop_position, status.first_frame) == (-1, b"")
    assert end.code is link.LinkErrorCode.OK
    (end,) = client.read_recording(99)
    assert end.code is link.LinkErrorCode.NOT_AVAILABLE
    assert end.text.endswith("recording 99 is not in the catalog")
    client.close()


@pytest.mark.parametrize("medium", ["grpc", "tcp", "ipc"])
def test_the_logs_for_people_are_sent_over_each_medium(node, medium):
    client = open_client(node, medium, b"token of reader")
    *blocks, end = client.read_events(link.EventsRequest(0, 0, 0, 0, LOG_NAMES.index("node.log")))
    assert b'"event": "starts"' in blocks[0].lines and blocks[0].member_id == 0
    assert end.code is link.LinkErrorCode.OK
    client.close()


@pytest.mark.conformance("S-164")
@pytest.mark.parametrize("medium", ["grpc", "tcp"])
@pytest.mark.parametrize("token", [b"", b"token of writer"])
def test_who_may_not_read_gets_no_snapshot_and_no_event(node, medium, token):
    client = open_client(node, medium, token)
    with pytest.raises(AuthenticationRejected):
        list(client.read_events(link.EventsRequest(0, 0, 0, 0, 0)))
    with pytest.raises(AuthenticationRejected):
        list(client.read_recording(entries_of(node)[-1].recording_id))
    client.close()
