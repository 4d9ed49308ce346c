"""The names that users import, and what importing costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import cluster

PUBLIC_NAMES = set(
    [
        "AdminRequestType",
        "AdminResponseCode",
        "AgentTermination",
        "Answer",
        "AsyncClusterClient",
        "AsyncConnect",
        "AuthenticationRejected",
        "Authenticator",
        "AuthorisationService",
        "BufferClaim",
        "ClientClosed",
        "ClientContext",
        "ClientSession",
        "ClientState",
        "CloseReason",
        "Cluster",
        "ClusterClient",
        "ClusterError",
        "ClusterNode",
        "ClusterTimeUnit",
        "ClusteredService",
        "ConfigurationError",
        "ControlledAction",
        "CredentialsSupplier",
        "DataLoss",
        "DirectoryInUse",
        "EgressBatch",
        "EgressListener",
        "EventCode",
        "LocalProtocolError",
        "LogDamaged",
        "LogReader",
        "MembersApart",
        "NodeConfig",
        "NotAClusterDirectory",
        "NotLeader",
        "Offer",
        "PasswordCredentials",
        "PortInUse",
        "ProtocolError",
        "RemoteProtocolError",
        "Role",
        "ServiceError",
        "SessionMessageBatch",
        "StorageError",
        "TimedOut",
        "TlsFailed",
        "TlsFiles",
        "TokenCredentials",
    ]
)


def test_the_public_names_are_these():
    assert set(cluster.__all__) == PUBLIC_NAMES
    assert set(dir(cluster)) >= PUBLIC_NAMES


@pytest.mark.parametrize("name", sorted(PUBLIC_NAMES))
def test_every_public_name_is_there_and_is_called_so(name):
    assert getattr(cluster, name).__name__ == name


def test_a_name_that_is_not_public_is_no_attribute():
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        cluster.Nothing  # noqa: B018


def test_importing_cluster_and_asking_for_help_load_nothing_heavy():
    code = (
        "import sys, cluster; from cluster.cli.main import main; assert main(['--help']) == 0;"
        "heavy = {'numba', 'numpy', 'pyarrow', 'grpc', 'pyspark', 'pydantic'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert "Usage: cluster" in result.stdout
