"""Who a client says it is. Secrets stay in their files until they are sent, and are in no ``repr``."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cluster.errors import ConfigurationError
from cluster.transport.named_file import read_named_file

TOKEN_FILE_VARIABLE = "CLUSTER_TOKEN_FILE"
USER_VARIABLE = "CLUSTER_USER"
PASSWORD_FILE_VARIABLE = "CLUSTER_PASSWORD_FILE"
VARIABLES = (TOKEN_FILE_VARIABLE, USER_VARIABLE, PASSWORD_FILE_VARIABLE)
SECRET_BYTES_MAX = 4096


class CredentialsSupplier(Protocol):
    """What a client shows of itself (io.aeron.security.CredentialsSupplier)."""

    def encoded_credentials(self) -> bytes:
        """The credentials in the connect request."""

    def on_challenge(self, encoded_challenge: bytes) -> bytes:
        """The answer to a challenge. The authenticators of this project ask for the same again."""
        return self.encoded_credentials()


@dataclass(frozen=True, slots=True, repr=False)
class FixedCredentials(CredentialsSupplier):
    """The bytes that were given, whatever is asked."""

    credentials: bytes

    def encoded_credentials(self) -> bytes:
        return self.credentials

    def __repr__(self) -> str:
        return "FixedCredentials(…)"


@dataclass(frozen=True, slots=True)
class TokenCredentials(CredentialsSupplier):
    """The token in a file, which is read each time, so that a new token needs no restart."""

    file: str | Path

    def encoded_credentials(self) -> bytes:
        """Raises ConfigurationError that names the file."""
        return read_secret(self.file)


@dataclass(frozen=True, slots=True)
class PasswordCredentials(CredentialsSupplier):
    """A user, and the password in a file."""

    user: str
    file: str | Path

    def __post_init__(self) -> None:
        if not self.user or ":" in self.user:
            raise ConfigurationError(f"user {self.user!r}: expected a name without a colon")

    def encoded_credentials(self) -> bytes:
        """``user:password``. Raises ConfigurationError that names the file."""
        return self.user.encode() + b":" + read_secret(self.file)


def read_secret(path: str | Path) -> bytes:
    """The first line of a file. Raises ConfigurationError that names the file, and not what is in it."""
    data = read_named_file(path, SECRET_BYTES_MAX)
    secret = data.partition(b"\n")[0].strip()
    if not secret:
        raise ConfigurationError(f"{path}: expected a secret in its first line, which is empty")
    return secret


def as_supplier(credentials: bytes | CredentialsSupplier) -> CredentialsSupplier:
    """What is given to a client as a supplier. Raises ConfigurationError for what is none."""
    if isinstance(credentials, bytes):
        return FixedCredentials(credentials)
    if not hasattr(credentials, "encoded_credentials"):
        kind = type(credentials).__name__
        raise ConfigurationError(f"credentials: expected bytes or a CredentialsSupplier, got a {kind}")
    return credentials


def credentials_in(environment: Mapping[str, str]) -> bytes | CredentialsSupplier:
    """What the environment names; empty for nothing."""
    return credentials_of(*map(environment.get, VARIABLES))


def credentials_of(
    token_file: str | None, user: str | None, password_file: str | None
) -> bytes | CredentialsSupplier:
    """What the files stand for; empty for none. Raises ConfigurationError where they do not fit together."""
    if token_file and (user or password_file):
        raise ConfigurationError("give a token file, or user and password file, not both")
    if bool(user) != bool(password_file):
        raise ConfigurationError("user and password file are given together, or not at all")
    if token_file:
        return TokenCredentials(token_file)
    return PasswordCredentials(user, password_file) if user and password_file else b""


def supplier_of(credentials: bytes | CredentialsSupplier | None) -> CredentialsSupplier:
    """What shows ``credentials``; without any, those of the environment. Raises ConfigurationError."""
    supplier = as_supplier(credentials_in(os.environ) if credentials is None else credentials)
    supplier.encoded_credentials()  # says which of its files will not do
    return supplier
