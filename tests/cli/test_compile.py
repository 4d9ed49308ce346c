"""``cluster compile``: what set-up of an image calls; and a first start, which compiles by the same means."""

import errno
import os
import subprocess
import sys

import pytest

from cluster.cli.compile import compile_first
from cluster.cli.main import main
from cluster.log import kernel_cache, warm
from tests.tree import ROOT

LABEL = "cluster: compiling kernels, once per installation\n"


@pytest.fixture
def modules(monkeypatch, tmp_path):
    """A folder for modules to be compiled; call it with their names."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return lambda *names: monkeypatch.setattr(warm, "MODULES", names)


def test_each_module_of_kernels_is_imported_by_processes_of_its_own_and_counted(modules, capfd, tmp_path):
    (tmp_path / "looked.py").write_text(
        "import os, pathlib\npathlib.Path(__file__).with_suffix('.pid').write_text(str(os.getpid()))\n"
    )
    modules("looked", "cluster.log.scan")

    assert main(["compile"]) == 0

    assert capfd.readouterr() == ("kernels of 2 modules are compiled\n", LABEL)
    assert (tmp_path / "looked.pid").read_text() != str(os.getpid())


def test_a_module_that_cannot_be_compiled_is_named_after_what_is_wrong_with_it(modules, capfd, tmp_path):
    (tmp_path / "wrong.py").write_text("raise ValueError('no such type')\n")
    modules("wrong")

    assert main(["compile"]) == 1

    out, err = capfd.readouterr()
    assert (out, err.splitlines()[-1]) == ("", "kernels of wrong could not be compiled")
    assert "ValueError: no such type" in err


@pytest.mark.parametrize("error", [ChildProcessError("wrong"), BlockingIOError(errno.EAGAIN, "none left")])
def test_where_no_others_can_compile_a_start_goes_on_and_compiles_itself(monkeypatch, error):
    def refuse(*_, **__):
        raise error

    monkeypatch.setattr(kernel_cache, "before_compiling", None)
    monkeypatch.setattr(warm.subprocess, "Popen", refuse)
    compile_first()
    kernel_cache.before_compiling("folder")


def test_the_first_kernel_that_a_start_misses_has_all_compiled_by_others_in_one_line(tmp_path):
    program = """
from cluster.cli import demo, node, up  # which are loaded before the kernels are looked for
from cluster.cli.compile import compile_first
from cluster.log import warm
warm.MODULES = ("cluster.log.atomic", "cluster.log.timer_table")
compile_first()
from cluster.log import atomic, timer_table
print(atomic._compare_and_set.stats.cache_hits.total(), timer_table._find.stats.cache_hits.total())
"""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(tmp_path)}
    for told in (LABEL, ""):
        run = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=100
        )
        assert (run.stdout, run.stderr) == ("1 1\n", told)
