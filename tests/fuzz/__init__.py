"""Whatever bytes a stranger sends: no exception but the named ones, in bounded time and memory.

targets.py    decoders, files and texts: bytes in, a name of what became of them out
media.py      the files of a media driver, and the egress of a session over it
ports.py      members' ports, in memory and real, with a client that must still be served
mutator.py    valid bytes, changed; what has led to a new outcome is changed further
__main__.py   ``python -m tests.fuzz TARGET``: for so many seconds, or one input again
"""
