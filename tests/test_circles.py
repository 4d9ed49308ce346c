"""No module imports itself by way of others, what only type checkers see included.

A circle of modules is one module in several files: none of them can be read, built or tested alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.tree import imports_in, modules

Graph = dict[str, set[str]]


def graph(paths: dict[str, Path]) -> Graph:
    """Of each module the modules among these that it imports, wherever in the file it does."""
    return {module: set(_imported(module, path, paths)) - {module} for module, path in paths.items()}


def _imported(module: str, path: Path, paths: dict[str, Path]) -> Iterator[str]:
    for name, _ in imports_in(path, module):
        while name and name not in paths:
            name = name.rpartition(".")[0]  # a name of a module, or one in a package
        if name:
            yield name


def circles(graph: Graph) -> list[set[str]]:
    """The sets of modules, two or more each, that all reach one another."""
    reached = {module: _reached(graph, module) for module in graph}
    found = {frozenset(other for other in reached[module] if module in reached[other]) for module in graph}
    return sorted((set(circle) for circle in found if len(circle) > 1), key=sorted)


def _reached(graph: Graph, module: str) -> set[str]:
    seen: set[str] = set()
    pending = [module]
    while pending:
        new = graph[pending.pop()] - seen
        seen |= new
        pending += new
    return seen


def test_no_modules_import_one_another() -> None:
    found = circles(graph(dict(modules())))
    assert not found, f"modules that import one another: {[sorted(circle) for circle in found]}"


def of_folders(graph: Graph, paths: dict[str, Path]) -> Graph:
    """The same of folders: what is in one is one. A module beside folders is one by itself."""
    folders = {module for module, path in paths.items() if path.name == "__init__.py"}
    above = {folder.rpartition(".")[0] for folder in folders}

    def room(module: str) -> str:
        folder = module if module in folders else module.rpartition(".")[0]
        return module if folder in above else folder

    found: Graph = {room(module): set() for module in graph}
    for module, imported in graph.items():
        found[room(module)] |= {room(other) for other in imported} - {room(module)}
    return found


def test_no_folders_import_one_another() -> None:
    paths = dict(modules())
    found = circles(of_folders(graph(paths), paths))
    assert not found, f"folders that import one another: {[sorted(circle) for circle in found]}"


def test_a_circle_of_folders_without_one_of_modules_is_seen(tmp_path: Path) -> None:
    paths = {"p": tmp_path / "__init__.py"}
    texts = {"a/one": "import p.b.one", "b/one": "", "b/two": "import p.a.two", "a/two": ""}
    for name, text in texts.items():
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        paths[f"p.{name.replace('/', '.')}"] = path
        paths[f"p.{name[0]}"] = path.parent / "__init__.py"
        paths[f"p.{name[0]}"].write_text("")
    paths["p"].write_text("")
    assert not circles(graph(paths))
    assert circles(of_folders(graph(paths), paths)) == [{"p.a", "p.b"}]


def test_a_circle_that_only_type_checkers_see_is_seen(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.b import B\n"
    )
    (tmp_path / "b.py").write_text("def f():\n    from p import a\n")
    (tmp_path / "c.py").write_text("import p.a\n")
    found = circles(graph({f"p.{name}": tmp_path / f"{name}.py" for name in "abc"}))
    assert found == [{"p.a", "p.b"}]
