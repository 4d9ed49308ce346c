"""gRPC, loaded as everything here uses it: ``from cluster.transport.grpc_core import grpc``.

Its core reads settings from the environment when it is imported, and never again.
"""

from __future__ import annotations

import os

# Or gRPC writes a line to standard error for each handshake that a stranger does not finish.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

import grpc
import grpc.aio

__all__ = ["grpc"]
