"""Add bytecode to the archive from which Spark's Python processes import PySpark.

Spark puts ``pyspark.zip`` in front of the search path of each Python process that it starts: one to load a
Python data source, one to plan a read of it. PySpark comes with sources alone in it, and Python keeps no
bytecode of what it imports from an archive. So each process compiles PySpark again. That takes half a second
of processor time, of the ten seconds that Spark waits for the process. Run this after PySpark was installed:

    python -m spark_connector.zipped_bytecode
"""

import importlib.util
import os
import py_compile
import sys
import tempfile
import zipfile
from pathlib import Path


def add_bytecode(archive: Path) -> bool:
    """Write the archive again with bytecode for this Python beside each source; False when it has it."""
    with zipfile.ZipFile(archive) as old, tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        if _has_bytecode(old):
            return False
        source, compiled, written = (Path(folder, name) for name in ("source", "source.pyc", archive.name))
        with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as new:
            for entry in old.infolist():
                if entry.filename.endswith(".pyc"):
                    continue
                content = old.read(entry)
                new.writestr(entry, content, zipfile.ZIP_DEFLATED)
                if entry.filename.endswith(".py"):
                    source.write_bytes(content)
                    name = f"{archive}/{entry.filename}"
                    # Never compared with its source: the archive is made as a whole, here.
                    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
                    py_compile.compile(str(source), str(compiled), name, doraise=True, invalidation_mode=mode)
                    new.write(compiled, f"{entry.filename}c")
        os.chmod(written, archive.stat().st_mode)
        os.replace(written, archive)
    return True


def _has_bytecode(archive: zipfile.ZipFile) -> bool:
    """Whether each source has bytecode of this Python; the first one shows."""
    names = set(archive.namelist())
    compiled = next((f"{name}c" for name in archive.namelist() if name.endswith(".py")), "")
    return compiled in names and archive.read(compiled).startswith(importlib.util.MAGIC_NUMBER)


def main() -> None:
    """Do it to the archives of the PySpark that is installed here."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        sys.exit("pyspark is not installed here; expected pip install 'pyspark-cluster[spark]'")
    for archive in sorted((Path(found.origin).parent / "python" / "lib").glob("*.zip")):
        add_bytecode(archive)


if __name__ == "__main__":
    main()
