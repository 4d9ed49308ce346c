"""``cluster compile``: the kernels of an installation, before its first member starts or as it does."""

import contextlib
import sys

import typer

from cluster.errors import ClusterError

app = typer.Typer(rich_markup_mode=None, add_completion=False)

EPILOG = """\b
Example:
  cluster compile

Run it once after each installation, as the user who owns it, or while you build an image. Otherwise the first
member that starts compiles the kernels, which takes about a minute. With NUMBA_CPU_NAME=x86-64-v3 and an
empty NUMBA_CPU_FEATURES it compiles for every CPU with these instructions; members need the same two
variables.
"""


@app.command(epilog=EPILOG)
def compile_kernels() -> None:
    """Compile the kernels of this installation on all cores, unless they are compiled already."""
    try:
        count = _compile_visibly()
    except ChildProcessError as error:
        raise ClusterError(str(error)) from None
    print(f"kernels of {count} modules are compiled")


def compile_first() -> None:
    """Have whichever kernel is missed first compile all, before members are forked off this process."""
    from cluster.log import kernel_cache

    def compile_all(folder: str) -> None:
        with contextlib.suppress(OSError):  # else this process compiles what it needs
            _compile_visibly()

    kernel_cache.before_compiling = compile_all


def _compile_visibly() -> int:
    """Returns of how many modules. Where standard error is no terminal, the label is all that is shown."""
    from cluster.log.kernel_cache import COMPILES
    from cluster.log.warm import MODULES, compile_everything

    label = f"cluster: {COMPILES}"
    with typer.progressbar(
        compile_everything(), len(MODULES), label, show_eta=False, width=0, file=sys.stderr
    ) as compiled:
        return sum(1 for _ in compiled)
