"""What verbs of the command line have in common, and how ``log``, ``tool`` and ``archive`` list theirs."""

import json
from functools import partial
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup


def json_option(help: str) -> Any:
    """``--json`` of a command that says what it prints then."""
    return typer.Option("--json", "-j", help=help)


AsJson = Annotated[bool, json_option("Print JSON.")]
OneObject = Annotated[bool, json_option("Print one JSON object instead of a line.")]

SENTENCE_LENGTH_MAX = 200  # click's own limit cuts most sentences off


def print_result(as_json: bool, result: object, text: object) -> None:
    """Print what came of a command, at once: as JSON or, for people, ``text``."""
    print(json.dumps(result) if as_json else text, flush=True)


def example(group: str, *commands: str, more: str = "") -> str:
    """The end of a verb's help: ``commands`` of the group, a line each, then ``more`` about them."""
    lines = "".join(f"  cluster {group} {command}\n" for command in commands)
    heading = "Example" if len(commands) == 1 else "Examples"
    return f"\b\n{heading}:\n{lines}" + (f"\n{more}\n" if more else "")


tool_example = partial(example, "tool")


class Verbs(TyperGroup):
    """A group whose help says of each verb the whole first sentence, under the ``panels`` that there are."""

    panels: dict[str, tuple[str, ...]] = {}

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for panel, names in (self.panels or {"Commands": tuple(self.list_commands(ctx))}).items():
            rows = []
            for name in names:
                command = self.get_command(ctx, name)
                assert command is not None, name
                rows.append((name, command.get_short_help_str(limit=SENTENCE_LENGTH_MAX)))
            with formatter.section(panel):
                formatter.write_dl(rows)


class Verb(TyperCommand):
    """A verb with arguments that must be given; typer's usage line has them in braces."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]
