"""gRPC, loaded as everything here uses it: ``from cluster.transport.grpc_core import grpc``.

Its core reads settings from the environment when it is imported, and never again. Since 1.80 its EventEngine
polls sockets in a thread of its own and hands what it finds to others, which then have to be woken. With the
poller before it the thread that waits for a call looks at the sockets itself: a round trip takes a fifth less
(docs/where-time-goes.md). That one is chosen where gRPC has both, unless somebody has set GRPC_EXPERIMENTS
or has imported gRPC before.
"""

import os
from importlib.metadata import version

from cluster.errors import ExtraNeeded

_EXPERIMENTS = ("event_engine_client", "event_engine_listener", "event_engine_for_all_other_endpoints")
_SETTINGS = {
    # Or gRPC writes a line to standard error for each handshake that a stranger does not finish.
    "GRPC_VERBOSITY": "ERROR",
    "GRPC_EXPERIMENTS": ",".join(f"-{name}" for name in _EXPERIMENTS),
}
# Releases that know these experiments; others call one that they do not know an error.
_FIRST, _LAST = (1, 80), (1, 85)


def _settings() -> dict[str, str]:
    release = tuple(int(part) for part in version("grpcio").split(".")[:2])
    known = _SETTINGS if _FIRST <= release <= _LAST else {"GRPC_VERBOSITY": _SETTINGS["GRPC_VERBOSITY"]}
    return {name: value for name, value in known.items() if name not in os.environ}


_own: dict[str, str] = {}
try:
    _own = _settings()
    os.environ.update(_own)
    import grpc
    import grpc.aio
except ModuleNotFoundError:
    text = "grpcio is not installed; expected pip install grpcio, or endpoints with tcp: or ipc:"
    raise ExtraNeeded(text, name="grpc") from None
finally:
    for _name in _own:  # processes that this one starts decide for themselves
        del os.environ[_name]

__all__ = ["grpc"]
