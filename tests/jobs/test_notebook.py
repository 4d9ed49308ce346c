"""The notebook over the Delta tables, run as Jupyter runs it."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "examples" / "tables.ipynb"
PNG = b"\x89PNG"


def outputs(notebook, kind):
    """What cells show in that form, in their order."""
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return [output["data"][kind] for output in shown if kind in output.get("data", {})]


def printed(notebook):
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "".join(output["text"] for output in shown if output["output_type"] == "stream")


def with_a_check(decoded):
    """The notebook, with a cell before the last that says what the first plot has."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    drawn = "print(int(rates.isna().sum().sum()), 'gaps', round(rates.sum().sum() * step), 'entries')"
    notebook.cells.insert(-1, nbformat.v4.new_code_cell(drawn))
    return notebook


def says_what_is_in_the_tables(text, decoded):
    assert f"'log': {len(decoded)}" in text
    assert "FIRED" in text
    assert f"0 gaps {len(decoded)} entries" in text, "where a line has a gap, it is not drawn"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore::matplotlib.MatplotlibDeprecationWarning")  # pandas' own
def test_the_cells_of_the_notebook_run_one_after_another_and_draw_three_plots(
    spark, kept, decoded, monkeypatch, capsys
):
    """In this process and session, which the last cell would end."""
    from matplotlib import pyplot

    monkeypatch.setenv("TABLES", kept)
    monkeypatch.setattr("jobs.session.spark_session", lambda *_: spark)
    shown = []
    monkeypatch.setattr(pyplot, "show", lambda: shown.append(len(pyplot.gcf().axes)) or pyplot.close("all"))
    *cells, last = (cell.source for cell in with_a_check(decoded).cells if cell.cell_type == "code")
    there = {}
    with pyplot.rc_context({"backend": "agg"}):
        for cell in cells:
            exec(cell, there)
    assert last == "spark.stop()"
    says_what_is_in_the_tables(capsys.readouterr().out, decoded)
    assert shown == [1, 1, 1]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.conformance("S-298")
def test_the_notebook_plots_throughput_lag_and_lives_of_sessions(kept, decoded, monkeypatch):
    monkeypatch.setenv("TABLES", kept)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    notebook = with_a_check(decoded)

    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(NOTEBOOK.parent)}}).execute()

    says_what_is_in_the_tables(printed(notebook), decoded)
    pictures = [base64.b64decode(picture) for picture in outputs(notebook, "image/png")]
    assert len(pictures) == 3 and all(picture.startswith(PNG) for picture in pictures)


def test_the_notebook_in_the_tree_has_no_outputs():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells)
