"""``cluster principal``: the file of principals that a member's authenticator goes by."""

import os
import secrets
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cluster.cli.verbs import Verb, Verbs, example
from cluster.errors import ConfigurationError, StorageErrors

SECRET_MODE = 0o600
TOKEN_BYTES = 32

app = typer.Typer(cls=Verbs, rich_markup_mode=None, add_completion=False, no_args_is_help=True)


class Kind(StrEnum):
    """What a principal proves itself by."""

    TOKEN = "token"
    PASSWORD = "password"


@app.callback()
def _principal() -> None:
    """Add a principal to the file that a member's authenticator reads."""


@app.command(
    cls=Verb,
    epilog=example(
        "principal",
        "add --file tokens feed --secret-file feed.token",
        "add --file passwords --kind password alice <alice.password",
        "add --file tokens feed --secret-file feed.new --keep",
        more="If the secret file of a token is missing, it is made with a random token. Secrets are never\n"
        "printed, and never given on the command line. A member reads the file again when it changes.",
    ),
)
def add(
    name: Annotated[str, typer.Argument(help="The principal's name.", metavar="NAME")],
    file: Annotated[Path, typer.Option("--file", help="The file of principals; made if missing.")],
    kind: Annotated[Kind, typer.Option("--kind", help="How the principal proves who it is.")] = Kind.TOKEN,
    secret_file: Annotated[
        Path | None, typer.Option(help="File with the secret in its first line; by default standard input.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the last secret valid beside this one.")] = False,
) -> None:
    """Add a principal to a file, or give it a new secret.

    With --keep the last secret stays valid beside the new one, until the principal is added without --keep.
    """
    from cluster.security.principals import check_name, password_digest, put, token_digest

    check_name(name)
    if kind is Kind.TOKEN and secret_file is not None and not secret_file.exists():
        _draw(secret_file)
    secret = _secret(secret_file)
    digest = password_digest(secret) if kind is Kind.PASSWORD else token_digest(secret)
    was_there = put(str(file), name, digest, keeps=keep)
    print(f"{name}: {'changed' if was_there else 'added'} in {file}")


def _draw(path: Path) -> None:
    """Write a new token, for its user's eyes alone."""
    with StorageErrors(path, "cannot be written"):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, SECRET_MODE)
        with open(fd, "w") as file:
            file.write(f"{secrets.token_urlsafe(TOKEN_BYTES)}\n")


def _secret(path: Path | None) -> bytes:
    from cluster.transport.credentials import read_secret

    if path is not None:
        return read_secret(path)
    secret = sys.stdin.buffer.readline().strip()
    if not secret:
        raise ConfigurationError("standard input: expected a secret in its first line, which is empty")
    return secret
