"""The ``cluster`` command itself: finds the module of a command, and turns every error into one line.

Exit status: 0 done, 1 what was asked for failed or is false, 2 wrong usage, 130 interrupted.
"""

import importlib
import os
import re
import shlex
import sys
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import typer
from typer.core import TyperGroup

from cluster.cli.printable import printable_streams
from cluster.errors import ClusterError, ConfigurationError, NotAClusterDirectory

# Typer has a click of its own in some versions, and needs the installed one in others.
UsageError: Any = typer.BadParameter.__mro__[1]
ClickException: Any = typer.BadParameter.__mro__[2]

# What the library that typer checks values with puts before an error of a choice.
VALUE_ERROR = "Value error, "
# How it begins one of a number, whose value it leaves out, and how it may end it.
NO_NUMBER, NO_NUMBER_END = "Input should be ", ", unable to parse"

# An option whose value is a place. An empty one would be the working directory.
PLACE = re.compile(r"--([a-z]+-)*(dir|config|file|ca|certificate|key|histogram|from|to)")
# The home directory, as a shell leaves it in --dir=~/c1 and in quotes.
HOME = re.compile(r"^(--[a-z-]+=)?~/")

# What `cluster --help` lists, by panel, so that it need not import the modules.
PANELS = {
    "Every day": {
        "up": "Run a whole cluster on this machine, one process per member.",
        "status": "Say whether a cluster is healthy, how many members it can lose, and what to do.",
        "live": "Show a cluster on a web page, as it runs or as it was.",
        "events": "Show what happened on all members, in order of time.",
        "top": "Watch roles, positions, lag, sessions and counters of the members.",
        "snapshot": "Have all members take a snapshot, from which their next start begins.",
        "restart": "Restart members one after another, here or on all hosts; sessions stay open.",
    },
    "Try": {
        "demo": "Kill the leader of three members under load every few seconds, and count what is lost.",
        "new": "Make a folder with a service, its test, a client and a Spark query, all ready to run.",
        "send": "Send lines or records in one session, and print the answers.",
        "bench": "Measure throughput and round-trip latency of a running cluster.",
        "sim": "Check, through simulated kills and restarts, that all members have the same state.",
        "story": "Play a scene of a cluster's life in memory, such as an election, with all its messages.",
    },
    "Log and tables": {
        "log": "Dump, follow or export the committed log.",
        "job": "Run a Spark job: keep Delta tables of the log, or answer its messages.",
        "aeron": "Run Aeron's media driver, to read and write a real Aeron Cluster from here.",
    },
    "Members": {
        "compile": "Compile the kernels of this installation, on all cores.",
        "format": "Bind an empty directory to a named cluster, before the member's first start.",
        "node": "Run one member from a configuration file.",
        "service": "Run one of a member's services in a process of its own.",
        "backup": "Keep a copy of a running cluster's log and snapshots, to restore it from.",
        "bundle": "Collect logs, configuration and state of a cluster in one file, without secrets.",
        "certs": "Make a certificate authority, and certificates for members and clients.",
        "principal": "Add a principal to the file that a member's authenticator reads.",
        "tool": "See, control, repair and restore members, as Aeron's ClusterTool does.",
        "archive": "Describe, dump or verify a member's archive, as Aeron's ArchiveTool does.",
    },
}
COMMANDS = {name: text for commands in PANELS.values() for name, text in commands.items()}

EPILOG = """Example:

  cluster up &

  echo hello | cluster send --endpoints 127.0.0.1:9000
"""


@cache
def _command(name: str) -> Any:
    """The command, made once: an interpreter may run many lines, and making one with verbs takes 20 ms."""
    command = typer.main.get_command(importlib.import_module(f"cluster.cli.{name}").app)
    command.name = name
    _name_arguments(command)
    return command


def _name_arguments(command: Any) -> None:
    """Have usage lines show each argument in capitals, as a place for a value."""
    for parameter in command.params:
        if parameter.param_type_name == "argument" and parameter.metavar is None:
            parameter.metavar = parameter.name.upper()
    for verb in getattr(command, "commands", {}).values():
        _name_arguments(verb)


class LazyCommands(TyperGroup):
    """A group whose commands are imported by name."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return _command(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        self.commands = dict.fromkeys(COMMANDS)  # type: ignore[assignment]  # names to suggest from
        if args[0] not in COMMANDS:
            for group in ("tool", "log", "archive"):
                if args[0] in _command(group).commands:
                    raise UsageError(f"No such command {args[0]!r}. Did you mean '{group} {args[0]}'?", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for panel, commands in PANELS.items():
            with formatter.section(panel):
                formatter.write_dl(list(commands.items()))

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        formatter.write("\n" + EPILOG)


app = typer.Typer(
    cls=LazyCommands,
    rich_markup_mode=None,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from cluster.protocol.versions import PACKAGE_VERSION

        typer.echo(f"cluster {PACKAGE_VERSION}")
        raise typer.Exit


@app.callback()
def _cluster(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """A replicated log in Python, compatible with Aeron Cluster, that Spark can read and write.

    Every command has --help with an example, and --json where it prints state.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (``sys.argv`` by default) and return its exit status."""
    _replace_closed_streams()
    with printable_streams():
        return _run(sys.argv[1:] if arguments is None else arguments)


def _run(arguments: Sequence[str]) -> int:
    try:
        words = _words(arguments)
        status = typer.main.get_command(app).main(args=words, prog_name="cluster", standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except ClusterError as error:
        return _fail(f"{error}{_of_one_member(arguments, error)}", error.exit_status)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:
        return _stop_writing()
    except SystemExit as end:
        # Click ends with 1 for a closed pipe before we see it.
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        return _stop_writing()
    except ClickException as error:
        return _report_usage(error)
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:
            return _fail(f"{error.filename}: {error.strerror}", 1)
        from cluster.node.memory import short_of_addresses

        if not (why := short_of_addresses()):
            raise
        return _fail(f"{type(error).__name__}: {error}; {why}", 1)


def _words(arguments: Sequence[str]) -> list[str]:
    """The words with ``~/`` replaced. Raises ConfigurationError for a place that is empty."""
    for before, word in pairwise(["", *arguments]):
        option = word.removesuffix("=") if word else before
        if (not word or word.endswith("=")) and PLACE.fullmatch(option):
            raise ConfigurationError(f"{option} is ''; expected a value")
    home = os.path.expanduser("~/")
    return [HOME.sub(lambda found: f"{found[1] or ''}{home}", word) for word in arguments]


def _of_one_member(arguments: Sequence[str], error: ClusterError) -> str:
    """The command line for one of the members, where the directory that it named is of a whole cluster."""
    if not isinstance(error, NotAClusterDirectory) or error.directory is None or error.member is None:
        return ""
    given = re.compile(rf"(|--[a-z-]+=|-d){re.escape(error.directory)}/*")
    words = _words(arguments)
    named = [f"{found[1]}{error.member}" if (found := given.fullmatch(word)) else word for word in words]
    if named == words:
        named += ["--dir", error.member]
    return f", for example: {shlex.join(['cluster', *named])}"


def _replace_closed_streams() -> None:
    """Put /dev/null in the place of the standard streams that whoever started us had closed."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - as long as the process


def _stop_writing() -> int:
    """Whoever read us has enough. What is still buffered would raise again at exit."""
    sys.stdout = sys.__stdout__
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 0


def _report_usage(error: Any) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":  # a group without a verb
        print(error.format_message().rstrip())
        return 0
    message = error.format_message().rstrip(".").replace(VALUE_ERROR, "")
    if NO_NUMBER in message:
        value = error.__cause__.errors()[0]["input"]
        message = message.replace(NO_NUMBER, f"{value!r}: expected ").partition(NO_NUMBER_END)[0]
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "cluster"
    hint = f" (see {command} --help)" if isinstance(error, UsageError) else ""
    return _fail(f"{command}: {message}{hint}", error.exit_code)


def _fail(message: str, status: int) -> int:
    sys.stdout.flush()
    sys.stderr.write(" ".join(message.split("\n")).rstrip() + "\n")
    return status
