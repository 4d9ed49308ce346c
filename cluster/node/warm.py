"""Compile every kernel, and the busy turn of members, into numba's cache: what set-up does once."""

import importlib

from cluster.log import warm


def compile_everything() -> None:
    """Compile, or load what is cached."""
    warm.compile_all()
    importlib.import_module("cluster.member.busy.turn")


if __name__ == "__main__":
    compile_everything()
