"""Python files that a program ships, by ``--py-files`` or ``addPyFile``, where a stream is planned.

Spark 4.2 gives each process of Python the folder of these files. The one that plans a stream it gives another
folder, ``streaming_job`` in that one, which it does not make (``PythonStreamingSourceRunner``). So that
process imports none of them, while those of batches and tasks do.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER_OF_STREAMS = "streaming_job"


def give_streams_the_files(spark: SparkSession) -> None:
    """Let both folders be one. A session of Spark Connect has its files elsewhere, and is left alone."""
    from pyspark.sql import SparkSession as ClassicSession

    if isinstance(spark, ClassicSession):
        from pyspark import SparkFiles

        folder = Path(SparkFiles.getRootDirectory())
        with suppress(FileExistsError):
            (folder / FOLDER_OF_STREAMS).symlink_to(folder)
