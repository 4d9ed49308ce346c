"""A replicated log that Spark can read and write, byte-compatible with Aeron Cluster.

What users import is named in ``__init__.pyi``, where type checkers find it, and loaded when it is asked for:
``import cluster`` costs nothing.
Read first: ``service/`` to write a state machine, ``client/`` to send to one, ``reader/`` to read the log,
``node/`` to embed a member; ``consensus/`` is how members agree, ``log/`` and ``protocol/`` the bytes.
"""

from importlib import import_module
from typing import Any


def _public() -> dict[str, str]:
    """The module of each public name, also from within an archive of files."""
    stub: bytes = __spec__.loader.get_data(f"{__file__.rpartition('.')[0]}.pyi")  # type: ignore[name-defined]
    imports = [line.split() for line in stub.decode().splitlines() if line.startswith("from ")]
    return {words[-1]: words[1] for words in imports}


_MODULE_OF = _public()
__all__ = list(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'cluster' has no attribute {name!r}")
    try:
        value = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
    except ModuleNotFoundError as error:
        from cluster.errors import ExtraNeeded, need

        if not isinstance(error, ExtraNeeded):
            need("node")
        raise
    return value


def __dir__() -> list[str]:
    return sorted([*(name for name in globals() if name.startswith("__")), *_MODULE_OF])
