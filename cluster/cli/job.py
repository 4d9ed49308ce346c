"""``cluster job``: the Spark jobs on the log, from a checkout or an installed package.

A checkout has them in ``jobs/``, where ``python -m jobs.NAME`` finds them, too. An installed package has them
in a folder of ``pyspark_cluster``, so that no environment gets a top-level package of so common a name; only
a process that runs a job sees it.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from typing import Annotated

import typer

from cluster.cli.verbs import Verb

app = typer.Typer(rich_markup_mode=None, add_completion=False)

JOBS = {
    "tables": "all Delta tables of the log in one query",
    "log_to_delta": "the log, one row an entry",
    "sessions": "cluster sessions",
    "timers": "timers that fired",
    "terms": "leadership terms",
    "respond": "answers of a function, as messages",
    "verify": "compare the tables with the log",
    "rebuild": "make the rows of the tables again",
    "maintenance": "compact the tables' files",
    "demo": "a year of flights through it all",
}

EPILOG = """\b
Example:
  cluster job tables --dir c1/member-0 --tables delta/all

\b
Jobs, each with options of its own and an example in its --help:
{}

They need the extra [spark], the demo [demo]; --writer delta-rs needs [delta] alone.
""".format("\n".join(f"- {name:<13} {what}" for name, what in JOBS.items()))

THE_REST_IS_THE_JOBS = {
    "allow_interspersed_args": False,
    "allow_extra_args": True,
    "ignore_unknown_options": True,
}


@app.command(cls=Verb, epilog=EPILOG, context_settings=THE_REST_IS_THE_JOBS)
def job(
    ctx: typer.Context,
    name: Annotated[
        str, typer.Argument(help="One of the jobs below; its options follow.", show_default=False)
    ] = "",
) -> None:
    """Run a Spark job on the log: Delta tables of it, or answers into it."""
    module = name.replace("-", "_")
    if module not in JOBS:
        what = f"there is no job {name!r}" if name else "which job?"
        raise typer.BadParameter(f"{what}; expected one of {', '.join(JOBS)}")
    folder = str(folder_of_jobs())
    sys.path.insert(0, folder)
    # Of members that the demo starts.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
    sys.argv = [f"cluster job {name}", *ctx.args]
    runpy.run_module(f"jobs.{module}", run_name="__main__", alter_sys=False)


def folder_of_jobs() -> Path:
    """Where the package ``jobs`` lies: beside ``cluster`` in a checkout, else where the build has put it."""
    beside = Path(__file__).resolve().parents[2]
    installed = beside / "pyspark_cluster"
    return installed if (installed / "jobs").is_dir() else beside
