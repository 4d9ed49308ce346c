"""Options of the commands that connect to members: each stands for a variable of clients."""

import functools
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from cluster.transport.credentials import PASSWORD_FILE_VARIABLE, TOKEN_FILE_VARIABLE, USER_VARIABLE
from cluster.transport.tls import TLS_VARIABLES

# Each parameter with its variable, and what it is.
VARIABLES: dict[str, tuple[str, str]] = {
    "tls_ca": (TLS_VARIABLES["ca"], "CA certificates (PEM) to verify members that use TLS."),
    "tls_certificate": (
        TLS_VARIABLES["certificate"],
        "The client's certificate (PEM), where members ask for one.",
    ),
    "tls_key": (TLS_VARIABLES["key"], "Its key (PEM)."),
    "token_file": (TOKEN_FILE_VARIABLE, "A file with the token to present in its first line."),
    "user": (USER_VARIABLE, "The user to log in as, with --password-file."),
    "password_file": (PASSWORD_FILE_VARIABLE, "A file with the user's password in its first line."),
}
METAVARS = {"user": "NAME"}


def connects(command: Callable[..., None]) -> Callable[..., None]:
    """The command with these options beside its own; while it runs, their variables say what they do."""

    @functools.wraps(command)
    def with_options(**arguments: Any) -> None:
        given = {VARIABLES[name][0]: arguments.pop(name) for name in VARIABLES}
        with _set({variable: value for variable, value in given.items() if value is not None}):
            command(**arguments)

    signature = inspect.signature(command, eval_str=True)
    parameters = [*signature.parameters.values(), *map(_parameter, VARIABLES)]
    with_options.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return with_options


def _parameter(name: str) -> inspect.Parameter:
    variable, text = VARIABLES[name]
    option = typer.Option(metavar=METAVARS.get(name, "FILE"), help=f"{text} Or set {variable}.")
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, option]
    )


@contextmanager
def _set(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
