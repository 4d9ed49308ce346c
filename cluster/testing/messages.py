"""What the clients of a storm send: lines of a file, what a user's function makes, or short texts."""

from pathlib import Path
from random import Random

from cluster.errors import ConfigurationError
from cluster.service.callbacks import RAISED
from cluster.service.service_loader import import_here
from cluster.testing.storm import Messages

WORDS = ("a", "b", "c", "get", "set", "add", "cancel", "buy", "sell", "order", "x" * 100)


def load_messages(source: str) -> Messages:
    """Lines of a file, of ``module:function`` with a Random, or short texts. Raises ConfigurationError."""
    if not source:
        return some_text
    if ":" in source and not Path(source).exists():
        return _function(source)
    try:
        lines = Path(source).read_bytes().splitlines()
    except OSError as error:
        raise ConfigurationError(f"messages {source}: {error.strerror}") from None
    if not lines:
        raise ConfigurationError(f"messages {source}: the file is empty, expected a message a line")
    return lambda random: random.choice(lines)


def _function(source: str) -> Messages:
    module_name, _, name = source.partition(":")
    try:
        function: Messages = getattr(import_here(module_name), name)
        made = function(Random(0))
    except RAISED as error:
        raise ConfigurationError(f"messages {source}: {type(error).__name__}: {error}") from None
    if not isinstance(made, bytes):
        raise ConfigurationError(f"messages {source}: returned {made!r}, expected bytes")
    return function


def some_text(random: Random) -> bytes:
    """A few words and numbers."""
    words = [random.choice((*WORDS, str(random.randrange(10)))) for _ in range(random.randint(1, 4))]
    return " ".join(words).encode()
