"""Runs of log bytes, and the compiled kernels that work on them: one call a batch, never one a message.

Read ``frames.py`` first (a frame, a message, a position, as every kernel sees them), then ``ingress.py``
(the leader's path into the log) and ``deliver.py`` (the way out of it).

A *run* is a ``uint8`` array of whole data frames, aligned to 32 bytes, one after the other. A run of the
log begins at a position and may cross the end of a term, whose padding frame is there whole, its body zero.
Offsets count bytes within an array, positions within the whole log; every range is half-open.

The folder does no I/O, knows no session protocol beyond the bytes it moves, and never raises for bytes that a
peer or a disk could have produced: kernels return a status and how far they came. Whatever the bytes, a
kernel stays within its arrays and ends.

Kernels are compiled once, for one signature, and cached (``kernel.py``); arrays may be read-only where they
are only read. ``warm.py`` compiles them all.
"""
