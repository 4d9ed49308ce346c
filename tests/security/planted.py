"""Secrets that are planted in files of a folder, and what looks for them everywhere else."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from tests.transport.authorities import Certificates

TOKEN, PASSWORD, WRONG = b"planted-token-7c1", b"planted-password-9d2", b"planted-wrong-word-3e8"


class Planted:
    """A folder with secrets in files of its own, which nothing else may hold."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.secrets = folder / "secrets"
        self.secrets.mkdir()
        for name, secret in (("token", TOKEN), ("password", PASSWORD), ("wrong", WRONG)):
            (self.secrets / name).write_bytes(secret)
        certificates = Certificates(self.secrets)
        self.tls = certificates.member(0)
        key_line = Path(self.tls.key).read_bytes().splitlines()[1]
        self.all = (TOKEN, PASSWORD, WRONG, key_line)

    def file(self, name: str) -> str:
        return str(self.secrets / name)

    def assert_not_in(self, data: bytes, where: object) -> None:
        assert not [secret for secret in self.all if secret in data], where

    def assert_left_nowhere(self) -> None:
        found = [
            path for path in self.folder.rglob("*") if path.is_file() and self.secrets not in path.parents
        ]
        assert len(found) > 10, "a run leaves files"
        for path in found:
            self.assert_not_in(path.read_bytes(), path)

    def assert_not_shown_by(self, pid: int) -> None:
        """What every user of a host sees of a process, and what its own user sees."""
        for name in ("cmdline", "environ"):
            with suppress(ProcessLookupError, FileNotFoundError):  # it has ended: nobody sees it
                self.assert_not_in(Path(f"/proc/{pid}/{name}").read_bytes(), f"{name} of {pid}")
