"""``cluster compile``: the kernels of an installation, before its first member starts."""

from __future__ import annotations

import sys

import typer

app = typer.Typer(rich_markup_mode=None, add_completion=False)

EPILOG = """\b
Example:
  cluster compile

Run it once after each installation, as the user who owns it, or while an image is built. Otherwise the first
command that needs kernels compiles them. NUMBA_CPU_NAME=x86-64-v3 with NUMBA_CPU_FEATURES= compiles for every
CPU that has these instructions; members then need the same two variables.
"""


@app.command(epilog=EPILOG)
def compile_kernels() -> None:
    """Compile the kernels of this installation, by all cores; nothing to do where that is done."""
    from cluster.log.warm import MODULES, compile_everything

    with typer.progressbar(
        compile_everything(), length=len(MODULES), label="kernels", file=sys.stderr
    ) as compiled:
        count = sum(1 for _ in compiled)
    print(f"kernels of {count} modules are compiled")
