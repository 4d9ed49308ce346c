"""Compile every kernel of this folder into the cache, so that no start and no executor has to."""

import importlib

# Whatever has a kernel in it; a test finds those that are missing.
KERNEL_MODULES = (
    "append",
    "atomic",
    "checksum",
    "column_kernels",
    "deliver",
    "entry_filter",
    "follow",
    "ingress",
    "json_objects",
    "message_calls",
    "message_numbers",
    "resend",
    "runs",
    "scan",
    "session_frames",
    "session_table",
    "timer_table",
)


def compile_all() -> None:
    """Import the modules with kernels: they compile, or load what is cached, on import."""
    for module in KERNEL_MODULES:
        importlib.import_module(f"cluster.log.{module}")
