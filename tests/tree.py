"""The files of this tree, its modules, and what they import."""

from __future__ import annotations

import ast
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("cluster", "spark_connector", "jobs")


@cache
def files_of_the_tree() -> list[Path]:
    """What belongs to the tree: everything that git tracks or would track."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT, capture_output=True, check=True,
    )  # fmt: skip
    names = listing.stdout.decode().split("\0")
    return sorted(ROOT / name for name in names if name and (ROOT / name).is_file())


@cache
def modules() -> list[tuple[str, Path]]:
    """Every module of the packages by its dotted name."""
    return list(_modules())


def _modules() -> Iterator[tuple[str, Path]]:
    for path in files_of_the_tree():
        relative = path.relative_to(ROOT)
        if path.suffix != ".py" or relative.parts[0] not in PACKAGES:
            continue
        if relative.parts[:2] == ("spark_connector", "discovery"):
            relative = Path(*relative.parts[2:])
        name = ".".join(relative.with_suffix("").parts)
        yield name.removesuffix(".__init__"), path


class Source(NamedTuple):
    """What the tests of the tree ask of a Python file."""

    docstring: str | None
    imports: list[tuple[ast.Import | ast.ImportFrom, bool]]  # and whether type checkers alone see it
    public: list[str]  # classes and functions at the top, without commands: those are named for users
    called: set[str]  # functions and classes that are called by their bare names


@cache
def source(path: Path) -> Source:
    """A file, parsed once a process."""
    tree = ast.parse(path.read_text())
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return Source(
        docstring=ast.get_docstring(tree),
        imports=list(_imports(tree.body, False)),
        public=[
            node.name
            for node in tree.body
            if isinstance(node, ast.ClassDef | ast.FunctionDef)
            and not node.name.startswith("_")
            and not any("app.command" in ast.unparse(decorator) for decorator in node.decorator_list)
        ],
        called={function.id for function in calls if isinstance(function, ast.Name)},
    )


def _imports(
    body: Iterable[ast.AST], is_type_only: bool
) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, is_type_only
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from _imports(node.body, True)
            yield from _imports(node.orelse, is_type_only)
        elif isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from _imports(ast.iter_child_nodes(node), is_type_only)


def imports_in(path: Path, module: str, *, with_type_only: bool = True) -> Iterator[tuple[str, int]]:
    """Each module that a file imports, which is that module, absolute, with its line."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node, is_type_only in source(path).imports:
        if is_type_only and not with_type_only:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        else:
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base]) if base else ".".join(above)
            yield from ((f"{base}.{alias.name}", node.lineno) for alias in node.names)


# Of TarFile.extractall, where Python knows it: 3.11 before 3.11.4 does not.
SAFELY: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
