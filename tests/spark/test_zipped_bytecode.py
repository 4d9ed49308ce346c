"""PySpark's archive, from which Spark's Python processes import: with bytecode they need not compile it."""

from __future__ import annotations

import stat
import subprocess
import sys
import zipfile

import pytest

from spark_connector.zipped_bytecode import add_bytecode


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "pyspark.zip"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("zipped/__init__.py", "ANSWER = 42\n")
        made.writestr("zipped/part.py", "def where():\n    raise ValueError('here')\n")
        made.writestr("zipped/notes.txt", "as it was")
    path.chmod(0o640)
    return path


def imported_from(archive, what: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(archive)!r})\n{what}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_modules_come_from_bytecode_with_their_sources_beside_it(archive):
    assert add_bytecode(archive)

    said = imported_from(archive, "import zipped; print(zipped.__file__, zipped.ANSWER)")
    assert said.stdout == f"{archive}/zipped/__init__.pyc 42\n"
    trace = imported_from(archive, "import zipped.part; zipped.part.where()").stderr
    assert f'File "{archive}/zipped/part.py", line 2, in where' in trace
    with zipfile.ZipFile(archive) as made:
        assert made.read("zipped/notes.txt") == b"as it was"
        assert len(made.namelist()) == len(set(made.namelist())) == 5
    assert stat.S_IMODE(archive.stat().st_mode) == 0o640
    assert list(archive.parent.iterdir()) == [archive]


def test_an_archive_that_has_it_is_left_alone_and_one_of_another_python_is_not(archive):
    add_bytecode(archive)
    before = archive.read_bytes()
    assert not add_bytecode(archive)
    assert archive.read_bytes() == before

    with zipfile.ZipFile(archive) as made:
        contents = {name: made.read(name) for name in made.namelist()}
    with zipfile.ZipFile(archive, "w") as other:
        for name, content in contents.items():
            other.writestr(name, b"\0\0\r\n" + content[4:] if name.endswith(".pyc") else content)
    assert add_bytecode(archive)
    assert imported_from(archive, "import zipped; print(zipped.__file__)").stdout.endswith(".pyc\n")
