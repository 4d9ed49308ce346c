"""The package alone is a client: nothing of what members and readers need is imported, or missed."""

import importlib.util
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("medium", "way"), [("ipc", "listener"), ("tcp", "answers"), ("grpc", "asyncio")])
def test_a_client_runs_where_neither_numpy_nor_numba_is_installed(leader, medium, way):
    run = subprocess.run(
        [sys.executable, "-m", "tests.client.light", leader.endpoints[medium], way],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )

    assert run.returncode == 0, run.stderr[-3000:]
    imported, connected = map(float, run.stdout.split())
    assert imported < 0.15, "seconds of processor time to import cluster"
    assert connected < 0.5, "and to connect"


@pytest.mark.parametrize(
    ("statement", "extra"),
    [
        ("from cluster import LogReader", "reader"),
        ("from cluster import ClusterClient; ClusterClient.token(None)", "reader"),
        ("from cluster import ClusteredService", "node"),
        ("from cluster import ClusterNode", "node"),
        ("import cluster.testing", "node"),
        ("import cluster.cli.main", "node"),
    ],
)
def test_an_import_of_what_is_not_installed_says_which_extra_brings_it(statement, extra):
    missing = "import sys; sys.modules.update(dict.fromkeys(('numpy', 'numba', 'llvmlite', 'pyarrow')))"
    run = subprocess.run(
        [sys.executable, "-c", f"{missing}; {statement}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )

    last = run.stderr.splitlines()[-1]
    assert last.endswith(f"is not installed; expected pip install 'pyspark-cluster[{extra}]'")
    assert last.startswith("cluster.errors.ExtraNeeded: numba is")
    assert run.stderr.count("Traceback") == 1, "that of the failed import is of no use"


def test_a_client_without_grpc_says_which_endpoints_need_none():
    statement = "from cluster import ClusterClient; ClusterClient.connect('127.0.0.1:1')"
    run = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.modules['grpc'] = None; {statement}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )

    last = run.stderr.splitlines()[-1]
    assert last.endswith("expected pip install grpcio, or endpoints with tcp: or ipc:")
    assert last.startswith("cluster.errors.ExtraNeeded: grpcio is not installed;")


def test_the_command_says_which_extra_brings_it_in_one_line():
    missing = "import sys; sys.modules['numba'] = None; import runpy"
    run = subprocess.run(
        [sys.executable, "-c", f"{missing}; runpy.run_module('cluster', run_name='__main__')", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr == "numba is not installed; expected pip install 'pyspark-cluster[node]'\n"


@pytest.mark.slow
def test_a_wheel_and_grpc_alone_are_a_client_of_30_megabytes(leader, tmp_path):
    """Unpacked as pip does; ``-S`` leaves all else out that is installed here."""
    tree = tmp_path / "tree"
    for name in ("cluster", "spark_connector", "jobs", "conf"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=tree, capture_output=True, check=True, timeout=100)
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (metadata,) = site.glob("*.dist-info/METADATA")
    needed = [line for line in metadata.read_text().splitlines() if line.startswith("Requires-Dist")]
    assert [line for line in needed if "extra ==" not in line] == ["Requires-Dist: grpcio>=1.80"]
    (grpc_metadata,) = (
        Path(importlib.util.find_spec("grpc").origin).parents[1].glob("grpcio-[0-9]*.dist-info")
    )
    shutil.copytree(grpc_metadata, site / grpc_metadata.name)
    for name in ("grpc", "typing_extensions"):
        found = Path(importlib.util.find_spec(name).origin)
        if found.name == "__init__.py":
            shutil.copytree(found.parent, site / name)
        else:
            shutil.copy(found, site)
    assert sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) < 30_000_000

    shutil.copy(ROOT / "tests" / "client" / "light.py", site)
    for medium, way in (("tcp", "listener"), ("grpc", "asyncio")):
        leader.log.clear()
        command = [sys.executable, "-S", "light.py", leader.endpoints[medium], way]
        run = subprocess.run(command, cwd=site, env={}, capture_output=True, text=True, timeout=100)
        assert run.returncode == 0, run.stderr[-3000:]
