"""``cluster compile``: what set-up of an image calls."""

import os

from cluster.cli.main import main
from cluster.log import warm


def test_each_module_of_kernels_is_imported_by_processes_of_its_own_and_counted(
    monkeypatch, capsys, tmp_path
):
    (tmp_path / "looked.py").write_text(
        "import os, pathlib\npathlib.Path(__file__).with_suffix('.pid').write_text(str(os.getpid()))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(warm, "MODULES", ("looked", "cluster.log.scan"))

    assert main(["compile"]) == 0

    assert capsys.readouterr().out == "kernels of 2 modules are compiled\n"
    assert (tmp_path / "looked.pid").read_text() != str(os.getpid())
