"""What this project is measured by, each figure beside what it is measured against.

    python -m benchmarks                      everything that needs no peer
    python -m benchmarks cluster --peers DIR  throughput and round trips, real Aeron in turns with ours

A benchmark is a module with ``run(options)``, which yields one dict a figure. The command prints them as
JSON lines and writes them to ``benchmarks/results/NAME.jsonl``, to be committed beside the change that
moved them. The machine is part of a figure, so compare lines of one run only.

Read ``cluster.py`` first.
"""
