"""``cluster job``: the Spark jobs on the log, from a checkout or an installed package.

A checkout has them in ``jobs/``, where ``python -m jobs.NAME`` finds them, too. An installed package has them
in a folder of ``pyspark_cluster``, so that no environment gets a top-level package of so common a name; only
a process that runs a job sees it.
"""

import os
import runpy
import sys
from pathlib import Path
from typing import Annotated

import typer

from cluster.cli.verbs import Verb

app = typer.Typer(rich_markup_mode=None, add_completion=False)

JOBS = {
    "tables": "keep all Delta tables of the log, in one query",
    "log_to_delta": "keep a table of the log, one row per entry",
    "sessions": "keep a table of cluster sessions",
    "timers": "keep a table of timers that fired",
    "terms": "keep a table of leadership terms",
    "respond": "answer messages with a function of yours",
    "verify": "compare the tables with the log",
    "rebuild": "replace all rows of the tables from the log",
    "maintenance": "compact the tables' files",
    "demo": "send a year of flights through all of it",
}

EPILOG = """\b
Example:
  cluster job tables --dir c1/member-0 --tables delta/all

\b
Jobs; `cluster job NAME --help` has the options of each and an example:
{}

The jobs need the extra [spark], and demo needs [demo]; with --writer delta-rs, [delta] is enough.
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
        str, typer.Argument(help="One of the jobs below, followed by its options.", show_default=False)
    ] = "",
) -> None:
    """Run a Spark job: keep Delta tables of the log, or answer its messages."""
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
