"""The files of this tree, its modules, and what they import."""

from __future__ import annotations

import ast
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("cluster", "spark_connector", "jobs")


def files_of_the_tree() -> list[Path]:
    """What belongs to the tree: everything that git tracks or would track."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT, capture_output=True, check=True,
    )  # fmt: skip
    names = listing.stdout.decode().split("\0")
    return sorted(ROOT / name for name in names if name and (ROOT / name).is_file())


def modules() -> Iterator[tuple[str, Path]]:
    """Every module of the packages by its dotted name."""
    for path in files_of_the_tree():
        relative = path.relative_to(ROOT)
        if path.suffix != ".py" or relative.parts[0] not in PACKAGES:
            continue
        if relative.parts[:2] == ("spark_connector", "discovery"):
            relative = Path(*relative.parts[2:])
        name = ".".join(relative.with_suffix("").parts)
        yield name.removesuffix(".__init__"), path


def imports_in(tree: ast.AST, module: str, path: Path) -> Iterator[tuple[str, int]]:
    """Each module that is imported anywhere in ``tree``, which is in that module, absolute, with its line."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base]) if base else ".".join(above)
            yield from ((f"{base}.{alias.name}", node.lineno) for alias in node.names)


# Of TarFile.extractall, where Python knows it: 3.11 before 3.11.4 does not.
SAFELY: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
