"""Tests of compiled code have nothing to look at in a run of plain Python."""

from numba import config

collect_ignore = ["test_kernel_cache.py"] if config.DISABLE_JIT else []
