"""The blocks of docs/clients.md run as they stand, and its table has every setting."""

from __future__ import annotations

import contextlib
import io
import re
from contextlib import ExitStack
from dataclasses import fields

import pytest

from cluster.client import ClientContext
from cluster.client.environment import VARIABLES
from tests.docs.texts import ROOT, Step, steps
from tests.node.processes import await_that
from tests.node.three import Three

SHOWN = {None: "none", False: "false", b"": 'b""', "": '""'}
BLOCKS = [step for step in steps("docs/clients.md") if step.file]


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory):
    with ExitStack() as opened:
        three = Three(tmp_path_factory.mktemp("three"), opened, services="echo")
        await_that(lambda: three.leader() is not None, "a leader")
        yield three.endpoints


@pytest.mark.parametrize("step", BLOCKS, ids=range(len(BLOCKS)))
def test_a_block_prints_what_it_says(endpoints: str, step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTER_ENDPOINTS", endpoints)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(step.text, "docs/clients.md", "exec"), {"__name__": "__main__"})

    assert printed.getvalue().splitlines() == re.findall(r"print\(.*\)  # (.*)", step.text)


def test_the_table_has_every_setting_with_its_default_and_variable() -> None:
    text = (ROOT / "docs/clients.md").read_text()
    rows = {row[0]: row[1:] for row in re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \|", text, re.MULTILINE)}
    variables = {setting: name for name, setting in VARIABLES.items()}
    names = {"ingress_endpoints": "endpoints"}
    for field in fields(ClientContext):
        if not field.init or field.name == "egress_listener":
            continue
        default, variable = rows.pop(names.get(field.name, field.name))
        shown = default.strip("`")
        if field.name in variables:
            assert variable == f"`{variables[field.name]}`"
        if field.name != "ingress_endpoints":
            assert shown == SHOWN.get(field.default, f"{field.default}").removesuffix(".0")
    assert not rows.keys() - {"NOT_CONNECTED", "BACK_PRESSURED", "ADMIN_ACTION", "CLOSED"}
