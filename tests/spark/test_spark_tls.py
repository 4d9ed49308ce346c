"""Spark against a member that speaks TLS and asks for certificates: in and out, over both media."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from cluster import ClusterNode
from tests.node.processes import await_that, keys_of
from tests.transport.authorities import Certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certs"))


@pytest.fixture(scope="module")
def member(tmp_path_factory, certificates):
    files = certificates.member(0)
    keys = keys_of(
        tmp_path_factory.mktemp("member"),
        tls_ca=files.ca,
        tls_certificate=files.certificate,
        tls_key=files.key,
        tls_client_certificates="required",
    )
    with ClusterNode.launch(**keys) as node:
        await_that(lambda: node.is_leader, "it leads")
        yield node


@pytest.mark.conformance("P-46")
@pytest.mark.parametrize("medium", [pytest.param("grpc", marks=pytest.mark.slow), "tcp"])
def test_rows_go_in_and_out_by_the_files_that_the_options_name(spark, member, certificates, medium):
    alice = certificates.client("alice")
    endpoint = member.config.member.ingress_endpoint
    if medium == "tcp":
        endpoint = f"tcp:{member.config.tcp_ingress_of(member.config.member)}"
    options = {
        "endpoints": f"0={endpoint}",
        "tlsCaFile": alice.ca,
        "tlsCertificateFile": alice.certificate,
        "tlsKeyFile": alice.key,
    }
    rows = spark.createDataFrame([(f"{medium} {n}",) for n in range(20)], ["payload"]).coalesce(1)
    rows.write.format("cluster").mode("append").options(**options).save()
    read = spark.read.format("cluster").options(**options, entryTypes="SESSION_MESSAGE").load()
    found = {bytes(row.payload).decode() for row in read.select("payload").collect()}
    assert found >= {f"{medium} {n}" for n in range(20)}
    plan = read._jdf.queryExecution().toString()
    assert Path(alice.key).read_text().splitlines()[1] not in plan

    with pytest.raises(PySparkException, match="asks for a client's certificate"):
        spark.read.format("cluster").options(
            endpoints=options["endpoints"], tlsCaFile=alice.ca
        ).load().count()
