"""A file of ``name: value`` lines that people edit while a member runs."""

from collections.abc import Callable
from typing import Generic, TypeVar

from cluster.errors import ClusterError, ConfigurationError
from cluster.transport.clock import monotonic_ns
from cluster.transport.file_look import FileLook, LoadedState
from cluster.transport.named_file import read_named_file, signature

LOOK_INTERVAL_NS = 1_000_000_000
PATIENCE_S = 0.02  # of a turn, with a look that it begins: a file that is there is read in less

T = TypeVar("T")
OnError = Callable[[ClusterError], None]


class WatchedFile(Generic[T]):
    """What a file says, read again when it has changed; looked at once a second at most, in a thread.

    A new content that is wrong, or none, is reported once, and the one before it stays in force; it is read
    again each time, as it may only have been out of reach. The path may lead over symbolic links; it has
    changed when they lead elsewhere.
    """

    def __init__(self, path: str, parse: Callable[[dict[str, str], str], T], on_error: OnError) -> None:
        """``parse`` gets the lines, and the path for its errors. Raises ConfigurationError."""
        self._path = path
        self._parse = parse
        self._file_look = FileLook(
            self._look,
            path,
            lambda error: on_error(ConfigurationError(f"{error}; what it said before stays in force")),
        )
        self._state = LoadedState(signature(path))
        self._next_look_ns = monotonic_ns() + LOOK_INTERVAL_NS
        self._value = parse(read_lines(path), path)

    def value(self) -> T:
        """The content in force."""
        now_ns = monotonic_ns()
        if now_ns >= self._next_look_ns:
            self._next_look_ns = now_ns + LOOK_INTERVAL_NS
            self._file_look.do_work(PATIENCE_S)
        return self._value

    def _look(self) -> None:
        self._state.take(signature(self._path), self._load)

    def _load(self) -> None:
        lines = read_lines(self._path)
        if not lines:
            raise ConfigurationError(f"{self._path}: is empty")
        self._value = self._parse(lines, self._path)


def read_lines(path: str) -> dict[str, str]:
    """Name to value of each line, without those empty or begun with ``#``. Raises ConfigurationError."""
    return parse_lines(read_text(path), path)


def parse_lines(text: str, path: str) -> dict[str, str]:
    """The same of a text; ``path`` is for its errors. Raises ConfigurationError."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if _is_comment(line):
            continue
        name, colon, value = line.rpartition(":")
        name = name.strip()
        if not colon or not name:
            raise ConfigurationError(f"{path}, line {number}: expected name: value")
        if name in found:
            raise ConfigurationError(f"{path}, line {number}: {name} is given twice")
        found[name] = value.strip()
    return found


def with_line(text: str, name: str, value: str) -> str:
    """The text with this line where the one of the name is, or else at its end; all others as they are."""
    lines = text.splitlines()
    names = [None if _is_comment(line) else line.rpartition(":")[0].strip() for line in lines]
    at = names.index(name) if name in names else len(lines)
    lines[at : at + 1] = [f"{name}: {value}"]
    return "".join(f"{line}\n" for line in lines)


def _is_comment(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def read_text(path: str) -> str:
    """Raises ConfigurationError."""
    try:
        return read_named_file(path).decode()
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path}: not a text in UTF-8") from None
