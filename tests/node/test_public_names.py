"""The names that users import, and what importing costs."""

from __future__ import annotations

import inspect
import os
import py_compile
import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

import cluster
import cluster.testing

PUBLIC_NAMES = set(
    [
        "AdminRequestType",
        "AdminResponseCode",
        "AgentTermination",
        "Answer",
        "ApplicationUnknown",
        "AsyncClusterClient",
        "AsyncConnect",
        "AuthenticationRejected",
        "Authenticator",
        "AuthorisationService",
        "BatchRegistered",
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
        "Entry",
        "EventCode",
        "ExclusivePublication",
        "Consumer",
        "Lane",
        "LaneStanding",
        "LocalProtocolError",
        "NewLeadershipTermEvent",
        "LogDamaged",
        "LogPurged",
        "LogReader",
        "PositionToken",
        "parse_token",
        "MembersApart",
        "NodeConfig",
        "NotAClusterDirectory",
        "NotLeader",
        "NO_ANSWER",
        "NOT_TAKEN",
        "Offer",
        "PasswordCredentials",
        "PortInUse",
        "ProtocolError",
        "RemoteProtocolError",
        "Role",
        "ServiceError",
        "ServiceContext",
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
    assert {name for name in dir(cluster) if not name.startswith("__")} == PUBLIC_NAMES


def test_they_are_known_where_only_bytecode_is_installed(tmp_path):
    source = Path(cluster.__file__)
    shutil.copy(source.with_suffix(".pyi"), tmp_path)
    py_compile.compile(str(source), cfile=str(tmp_path / "__init__.pyc"))
    spec = spec_from_file_location("without_source", tmp_path / "__init__.pyc")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    assert set(module.__all__) == PUBLIC_NAMES


@pytest.mark.parametrize("name", sorted(PUBLIC_NAMES))
def test_every_public_name_is_there_and_is_called_so(name):
    value = getattr(cluster, name)
    assert isinstance(value, int) or value.__name__ == name  # a constant does not know its name


def test_a_name_that_is_not_public_is_no_attribute():
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        cluster.Nothing  # noqa: B018


TYPED = """
from collections.abc import Iterable
from typing import assert_type

from cluster import ClientSession, Cluster, ClusterClient, ClusteredService, ExclusivePublication


class Service(ClusteredService):
    def on_start(self, cluster: Cluster, snapshot_image: Iterable[bytes] | None) -> None:
        assert_type(cluster.context().cluster_id, int)

    def on_session_message(self, session: ClientSession | None, timestamp: int, buffer: memoryview) -> None:
        session.offer(buffer)

    def on_take_snapshot(self, snapshot_publication: ExclusivePublication) -> None:
        snapshot_publication.offer("text")


ClusterClient.connect(5)
"""


@pytest.mark.slow
def test_a_type_checker_sees_what_a_service_and_a_client_do_wrong(tmp_path):
    (tmp_path / "typed.py").write_text(TYPED)
    mypy = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", "cache", "typed.py"]
    environment = {**os.environ, "MYPYPATH": str(Path(cluster.__file__).parents[1])}
    result = subprocess.run(mypy, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=110)
    wrong = [line.split(":")[1] for line in result.stdout.splitlines() if ": error: " in line]
    assert wrong == ["13", "16", "19"], result.stdout + result.stderr


def test_importing_cluster_and_asking_for_help_load_nothing_heavy():
    code = (
        "import sys, cluster; from cluster.cli.main import main; assert main(['--help']) == 0;"
        "heavy = {'numba', 'numpy', 'pyarrow', 'grpc', 'pyspark', 'pydantic'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert "Usage: cluster" in result.stdout


def test_every_public_name_and_what_it_has_says_what_it_is():
    missing = []
    for module in (cluster, cluster.testing):
        for name in module.__all__:
            value = getattr(module, name)
            members = vars(value).items() if inspect.isclass(value) else ()
            named = {
                name: value,
                **{f"{name}.{member}": item for member, item in members if member[0] != "_"},
            }
            for told, item in named.items():
                function = getattr(item, "fget", getattr(item, "__func__", item))
                is_class = inspect.isclass(function)  # whose base has a docstring, too, such as Protocol's
                documented = vars(function).get("__doc__") if is_class else inspect.getdoc(function)
                if (is_class or inspect.isroutine(function)) and not documented:
                    missing.append(told)
    assert not missing
