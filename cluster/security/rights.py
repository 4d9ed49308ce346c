"""What each principal may do, from a file: ``principal: write, read``, with ``*`` for all others."""

from cluster.consensus.authentication import Right, right_to
from cluster.errors import ConfigurationError
from cluster.security.text_file import OnError, WatchedFile

EVERYBODY = "*"


def parse_rights(lines: dict[str, str], path: str) -> dict[str, frozenset[Right]]:
    """The rights by principal. Raises ConfigurationError that names principal and word."""
    found = {}
    for name, text in lines.items():
        words = {word.strip() for word in text.split(",")} - {""}
        if wrong := sorted(words - set(Right)):
            raise ConfigurationError(f"{path}: {name} has {wrong[0]!r}, expected {', '.join(Right)}")
        found[name] = frozenset(map(Right, words))
    return found


class RightsFile:
    """An AuthorisationService that grants what its file says, and nothing else."""

    def __init__(self, path: str, on_error: OnError) -> None:
        """Raises ConfigurationError."""
        self._file = WatchedFile(path, parse_rights, on_error)

    def is_authorised(
        self, schema_id: int, action_id: int, request_type: int | None, encoded_principal: bytes
    ) -> bool:
        rights = self._file.value()
        name = encoded_principal.decode(errors="replace")
        return right_to(schema_id, action_id) in rights.get(name, rights.get(EVERYBODY, frozenset()))


class NoRights:
    """The AuthorisationService where an authenticator has no rights beside it: nobody may do anything."""

    def is_authorised(
        self, schema_id: int, action_id: int, request_type: int | None, encoded_principal: bytes
    ) -> bool:
        return False
