"""The commands as they are typed."""

from __future__ import annotations

from typing import Any

import typer

from cluster.cli.main import COMMANDS, app


def command_lines() -> list[list[str]]:
    """Every command with its verbs, as typed."""
    group: Any = typer.main.get_command(app)
    found: list[list[str]] = []
    for name in COMMANDS:
        command = group.get_command(None, name)
        verbs = getattr(command, "commands", {})
        found += [[name, verb] for verb in verbs] or [[name]]
    return found
