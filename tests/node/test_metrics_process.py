"""The process beside a member that serves its metrics: real ones, and over TLS."""

import json
import os
import signal
import socket
import ssl
import time
import urllib.error
import urllib.request
from contextlib import ExitStack

import pytest

from cluster import ClusterClient, ClusteredService, ClusterNode
from cluster.errors import PortInUse
from cluster.transport.tls import client_context
from tests.cli.promtool import RULES, Page, rule_test, said_of, scrape
from tests.node.processes import await_that, endpoints_of, keys_of
from tests.node.three import Three
from tests.transport.authorities import Certificates


def fetched(node: ClusterNode, target: str, context: ssl.SSLContext | None = None) -> tuple[int, bytes]:
    scheme = "http" if context is None else "https"
    url = f"{scheme}://{node.config.metrics_address}{target}"
    try:
        with urllib.request.urlopen(url, timeout=30, context=context) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def page_of(node: ClusterNode) -> Page:
    text = fetched(node, "/metrics")[1].decode()
    return scrape(text, job="c", instance=node.config.metrics_address)


def child_of(node: ClusterNode) -> int:
    process = node._metrics._child._process
    return -1 if process is None else process.pid


@pytest.mark.slow
def test_it_is_started_again_when_it_dies_and_ends_with_its_member(tmp_path):
    with ClusterNode.launch(**keys_of(tmp_path, metrics_endpoint="auto")) as node:
        await_that(lambda: node.is_leader, "it leads")
        assert fetched(node, "/readyz") == (200, b"ok\n")
        assert b"\ncluster_leading 1.0\n" in fetched(node, "/metrics")[1]
        assert json.loads(fetched(node, "/status")[1])["verdict"] == "healthy"

        before = child_of(node)
        os.kill(before, signal.SIGKILL)
        assert fetched(node, "/livez") == (200, b"ok\n"), "who comes meanwhile waits"
        assert child_of(node) not in (before, -1)
        last = child_of(node)
    with pytest.raises(ProcessLookupError):
        os.kill(last, 0)


@pytest.mark.interop
def test_alerts_fire_for_a_real_cluster_that_loses_two_of_its_members(tmp_path):
    with ExitStack() as opened:
        cluster = Three(tmp_path, opened, metrics_endpoint="auto")
        survivor = cluster.nodes[0]

        def said(before: Page, fires: dict[str, bool]) -> str:
            return said_of(tmp_path, [rule_test(before, page_of(survivor), fires)])

        await_that(lambda: cluster.leader() is not None, "somebody leads")
        well = dict.fromkeys(RULES, False)
        await_that(lambda: not said(page_of(survivor), well), "all is well")
        before = page_of(survivor)
        for node in cluster.nodes[1:]:
            node.close()
        lost = dict.fromkeys(("ClusterNoLeader", "ClusterMemberNotReady", "ClusterLinkDown"), True)
        await_that(lambda: not said(before, lost), "its alerts fire")
        assert fetched(survivor, "/livez")[0] == 200


class SlowAndFailing(ClusteredService):
    def on_session_message(self, session, timestamp, buffer):
        time.sleep(0.02)
        raise ValueError("no such account")


@pytest.mark.interop
def test_alerts_fire_for_a_real_member_whose_service_and_whose_clients_misbehave(tmp_path):
    keys = keys_of(
        tmp_path,
        services=[f"{__name__}:SlowAndFailing"],
        service_mode="inline",
        service_cycle_threshold="10ms",
        cycle_threshold="10ms",
        session_timeout="1s",
        max_sessions=7,
        connections_max=7,
        log_term_length="64k",
        archive_segment_file_length="64k",
        log_bytes_max="256k",
        log_export_watermark=True,  # nothing is exported, so nothing is dropped
        metrics_endpoint="auto",
    )
    slow_and_failing = ("ClusterServiceErrors", "ClusterServiceSlow", "ClusterTurnsLate")
    many_and_refused = ("ClusterSessionsNearLimit", "ClusterConnectionsNearLimit", "ClusterRefusals")
    alerts = (*slow_and_failing, *many_and_refused, "ClusterClientsSilent", "ClusterLogFull")
    with ClusterNode.launch(**keys) as node, ExitStack() as opened:
        await_that(lambda: node.is_leader, "it leads")

        def fire(before: Page, *alerts: str) -> bool:
            rules = rule_test(before, page_of(node), dict.fromkeys(alerts, True))
            return not said_of(tmp_path, [rules])

        before = page_of(node)
        quiet = rule_test(before, before, dict.fromkeys(alerts, False))
        assert said_of(tmp_path, [quiet]) == ""
        tcp = endpoints_of(node, "tcp")
        clients = [opened.enter_context(ClusterClient.connect(tcp)) for _ in range(6)]

        def misbehave() -> None:
            for client in clients:
                client.poll_egress()
                client.offer(b"x")
            clients[0].send_admin_request_to_take_a_snapshot(1)  # nobody may, over the network

        wrong = (*slow_and_failing, *many_and_refused)
        await_that(lambda: misbehave() or fire(before, *wrong), "a bad service, and many clients")
        await_that(lambda: fire(before, "ClusterClientsSilent"), "clients that say nothing")
        client = opened.enter_context(ClusterClient.connect(tcp))

        def fill() -> None:
            client.poll_egress()
            client.offer(bytes(4000))

        await_that(lambda: fill() or fire(before, "ClusterLogFull"), "a log without room")


@pytest.mark.slow
def test_with_tls_and_rights_it_answers_whom_they_let_read_and_nobody_in_the_clear(tmp_path):
    certificates = Certificates(tmp_path)
    own = certificates.member(0)
    (tmp_path / "rights").write_text("alice: read\n")
    keys = keys_of(
        tmp_path,
        tls_ca=own.ca,
        tls_certificate=own.certificate,
        tls_key=own.key,
        tls_client_certificates="required",
        authenticator="certificate",
        authorisation=str(tmp_path / "rights"),
        metrics_endpoint="auto",
    )
    alice, bob = (client_context(certificates.client(name)) for name in ("alice", "bob"))
    with ClusterNode.launch(**keys) as node:
        await_that(lambda: node.is_leader, "it leads")
        assert fetched(node, "/livez", bob) == (200, b"ok\n")
        assert fetched(node, "/metrics", bob) == (403, b"no right to read\n")
        assert fetched(node, "/metrics", alice)[0] == 200
        with pytest.raises(OSError):
            fetched(node, "/livez")


def test_a_port_in_use_is_said_before_anything_is_started(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        keys = keys_of(tmp_path, metrics_endpoint=f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(PortInUse, match=r"metrics_endpoint: tcp:.* in use already"):
            ClusterNode.launch(**keys)
