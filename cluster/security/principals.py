"""Digests of secrets by principal: what an authenticator's file holds in place of the secrets.

    alice: scrypt$15$8$1$<salt>$<hash>      a password: slow to try, by scrypt (RFC 7914)
    feed: sha256$<hash>                     a token, drawn at random: nothing is to be guessed
    feed: sha256$<hash>, sha256$<hash>      two of them, so that one can be changed for the other in time

Salt and hash are hexadecimal.
"""

import fcntl
import hashlib
import hmac
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from cluster.archive.files import OsFile, OsFiles, replace
from cluster.errors import ConfigurationError, StorageErrors
from cluster.security.text_file import parse_lines, read_text, with_line

NAME_LENGTH_MAX = 256
SCRYPT_LOG_N, SCRYPT_R, SCRYPT_P = 15, 8, 1  # 32 MiB and about 50 ms
SCRYPT_MEMORY_MAX = 256 * 1024 * 1024
SALT_BYTES = 16
SECRETS_MAX, SEPARATOR = 2, ", "  # of a principal
_PASSWORD = re.compile(
    r"scrypt\$(1[0-9]|20)\$([1-9][0-9]?)\$([1-9][0-9]?)\$((?:[0-9a-f]{2}){8,64})\$([0-9a-f]{64})"
)
_TOKEN = re.compile(r"sha256\$([0-9a-f]{64})")
_NAME = re.compile(r"[\w.@=+/ -]+")


class Digest(Protocol):
    """What is known of one secret."""

    def fits(self, secret: bytes) -> bool:
        """Whether it is this one; takes as long for a wrong one as for the right one."""


class PasswordDigest(NamedTuple):
    """Of a password, salted. ``fits`` takes some 50 ms."""

    log_n: int
    r: int
    p: int
    salt: bytes
    hash: bytes

    def fits(self, secret: bytes) -> bool:
        return hmac.compare_digest(self.hash, _scrypt(secret, self))

    def __repr__(self) -> str:
        return "PasswordDigest(…)"

    def __str__(self) -> str:
        return f"scrypt${self.log_n}${self.r}${self.p}${self.salt.hex()}${self.hash.hex()}"


class TokenDigest(NamedTuple):
    """Of a token."""

    hash: bytes

    def fits(self, secret: bytes) -> bool:
        return hmac.compare_digest(self.hash, hashlib.sha256(secret).digest())

    def __repr__(self) -> str:
        return "TokenDigest(…)"

    def __str__(self) -> str:
        return f"sha256${self.hash.hex()}"


class Digests(NamedTuple):
    """Of the secrets of one principal: any of them will do. Takes as long whichever fits."""

    digests: tuple[Digest, ...]

    def fits(self, secret: bytes) -> bool:
        return any([digest.fits(secret) for digest in self.digests])

    def __repr__(self) -> str:
        return "Digests(…)"

    def __str__(self) -> str:
        return SEPARATOR.join(map(str, self.digests))


def password_digest(password: bytes) -> PasswordDigest:
    """A digest of the password with a salt of its own."""
    salt = secrets.token_bytes(SALT_BYTES)
    empty = PasswordDigest(SCRYPT_LOG_N, SCRYPT_R, SCRYPT_P, salt, b"")
    return empty._replace(hash=_scrypt(password, empty))


def token_digest(token: bytes) -> TokenDigest:
    return TokenDigest(hashlib.sha256(token).digest())


def _scrypt(password: bytes, digest: PasswordDigest) -> bytes:
    return hashlib.scrypt(
        password,
        salt=digest.salt,
        n=1 << digest.log_n,
        r=digest.r,
        p=digest.p,
        maxmem=SCRYPT_MEMORY_MAX,
        dklen=32,
    )


def parse_tokens(lines: dict[str, str], path: str) -> dict[str, Digests]:
    """The tokens' digests by principal. Raises ConfigurationError that names the principal."""
    return {name: _parse(_parse_token, name, text, path) for name, text in lines.items()}


def _parse(parse_one: Callable[[str, str, str], Digest], name: str, text: str, path: str) -> Digests:
    parts = text.split(SEPARATOR)
    if len(parts) > SECRETS_MAX:
        raise ConfigurationError(f"{path}: {name} has {len(parts)} secrets, expected {SECRETS_MAX} at most")
    return Digests(tuple(parse_one(name, part, path) for part in parts))


def _parse_token(name: str, text: str, path: str) -> TokenDigest:
    match = _TOKEN.fullmatch(text)
    if match is None:
        raise ConfigurationError(f"{path}: {name} has no digest of a token, expected sha256$…")
    return TokenDigest(bytes.fromhex(match[1]))


def parse_passwords(lines: dict[str, str], path: str) -> dict[str, Digests]:
    """The passwords' digests by principal. Raises ConfigurationError that names the principal."""
    return {name: _parse(_parse_password, name, text, path) for name, text in lines.items()}


def _parse_password(name: str, text: str, path: str) -> PasswordDigest:
    match = _PASSWORD.fullmatch(text)
    if match is None:
        raise ConfigurationError(f"{path}: {name} has no digest of a password, expected scrypt$…")
    log_n, r, p = int(match[1]), int(match[2]), int(match[3])
    if 128 * r * ((1 << log_n) + p) >= SCRYPT_MEMORY_MAX:
        raise ConfigurationError(f"{path}: the digest of {name} takes more memory than 256 MiB")
    return PasswordDigest(log_n, r, p, bytes.fromhex(match[4]), bytes.fromhex(match[5]))


def check_name(name: str) -> str:
    """The name of a principal as files can hold it. Raises ConfigurationError."""
    if not _NAME.fullmatch(name) or name != name.strip() or len(name) > NAME_LENGTH_MAX:
        raise ConfigurationError(
            f"principal {name!r}: expected 1 to {NAME_LENGTH_MAX} letters, digits, spaces or . _ - @ = + /"
        )
    return name


def put(path: str, name: str, digest: Digest, *, keeps: bool = False) -> bool:
    """Put a principal's line in place; whether it had one. ``keeps``: its last secret stays good beside.

    The file keeps its other lines, owner, group and mode. Raises ConfigurationError, StorageError.
    """
    target = os.path.realpath(path)
    with _locked(os.path.dirname(target)):
        text = read_text(path) if os.path.lexists(path) else ""
        lines = parse_lines(text, path)
        was_there = name in lines
        last = [lines[name].partition(SEPARATOR)[0]] if keeps and was_there else []
        line = SEPARATOR.join([str(digest), *last])
        replace(_FilesLike(target), target, with_line(text, name, line).encode())
    return was_there


class _FilesLike(OsFiles):
    """Files that are made with owner, group and mode of another one, if that is there."""

    def __init__(self, path: str) -> None:
        with StorageErrors(path, "cannot be read"):
            self._found = os.stat(path) if os.path.lexists(path) else None

    def open(self, path: str, *, write: bool = False, create: bool = False) -> OsFile:
        file = super().open(path, write=write, create=create)
        if create and self._found is not None:
            os.fchown(file.fileno(), self._found.st_uid, self._found.st_gid)
            os.fchmod(file.fileno(), stat.S_IMODE(self._found.st_mode))
        return file


@contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Wait for whoever else puts a line into a file of the folder. Raises StorageError."""
    with StorageErrors(folder, "cannot be locked"):
        fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with StorageErrors(folder, "cannot be locked"):
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
