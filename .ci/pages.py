"""The site's pages: ``docs/`` and, beside it, those that the code has already: API, commands, keys.

    python .ci/pages.py build/docs

``llms.txt`` is the front page for programs that read: a list of all pages, which lie beside it.
"""

from __future__ import annotations

import io
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path

import cluster
import cluster.testing
from cluster.cli.main import COMMANDS, _command, main

ROOT = Path(__file__).resolve().parents[1]
# A section's title; or what comments say of a key, and the key.
_IN_TOML = re.compile(r"^# ---- (.+) -+$|^((?:# .*\n)+)(\w+) =", re.MULTILINE)


def api() -> Iterator[str]:
    """what `from cluster import …` and `from cluster.testing import …` give"""
    for module in (cluster, cluster.testing):
        for name in module.__all__:
            place = getattr(getattr(module, name), "__module__", "cluster.log.message_calls")
            yield f"::: {place}.{name}\n"


def commands() -> Iterator[str]:
    """what each command says with `--help`"""
    for name in COMMANDS:
        for verb in getattr(_command(name), "commands", None) or [""]:
            words = [name, verb] if verb else [name]
            with redirect_stdout(io.StringIO()) as said:
                main([*words, "--help"])
            yield f"## cluster {' '.join(words)}\n\n```text\n{said.getvalue().rstrip()}\n```\n"


def configuration() -> Iterator[str]:
    """every key of `node.toml`, with its default, its unit, and Aeron's name of it"""
    for section, text, key in _IN_TOML.findall((ROOT / "conf" / "node.toml").read_text()):
        *said, facts = re.findall("^# (.+)$", text, re.MULTILINE) or [""]
        yield f"## {section}\n" if section else "\n".join([f"### {key}\n", *said, f"\n{facts}\n"])


PAGES: dict[str, Callable[[], Iterator[str]]] = {
    "Python API": api,
    "Commands": commands,
    "Configuration": configuration,
}

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder)
    listed = "## Reference\n\n"
    for title, parts in PAGES.items():
        page = f"{parts.__name__}.md"
        (folder / page).write_text("\n".join([f"# {title}\n", *parts()]))
        listed += f"- [{title}]({page}): {parts.__doc__}\n"
    front = (folder / "README.md").read_text().replace("## Reference\n\n", listed)
    (folder / "README.md").write_text(front)
    (folder / "llms.txt").write_text(front.replace("# Documentation", "# pyspark-cluster", 1))
