"""docs/formats.md tells what the declarations tell."""

import subprocess
import sys
from pathlib import Path

from cluster.protocol import CLUSTER, link
from tests.protocol.format_tables import tables, with_tables

FORMATS = Path(__file__).resolve().parents[2] / "docs" / "formats.md"


def test_the_tables_of_the_document_are_those_of_the_declarations():
    text = FORMATS.read_text()

    assert with_tables(text) == text, (
        "make them anew: "
        "python -m tests.protocol.format_tables < docs/formats.md > new.md && mv new.md docs/formats.md"
    )


def test_the_command_prints_the_same():
    with FORMATS.open() as document:
        printed = subprocess.run(
            [sys.executable, "-m", "tests.protocol.format_tables"],
            stdin=document,
            capture_output=True,
            text=True,
            check=True,
            cwd=FORMATS.parent.parent,
            timeout=60,
        )
    assert printed.stdout == FORMATS.read_text()


def test_every_message_has_a_row():
    rows = {name: len(lines) - 2 for name, lines in tables().items()}

    assert rows["messages of schema 111"] == len(CLUSTER.templates) == 54
    assert rows["messages of schema 1111"] == len(link.LINK_SCHEMA.templates)


def test_the_document_names_every_file():
    text = FORMATS.read_text()
    for name in (".catalog", ".rec", "archive-mark.dat", "cluster-mark.dat", "recording.log", "cnc.dat"):
        assert f"{name}`" in text or f"# {name}" in text, name
