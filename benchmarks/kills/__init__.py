"""Random kills while source, transformation, sink and Delta work, and a ledger of what became of the rows.

    python -m benchmarks.kills --kills 500        (make faults KILLS=500)
    python -m benchmarks.kills --aeron --kills 200    (make faults KILLS=200 ARGS=--aeron)

Three members, ours or those of a real Aeron Cluster, a standalone Spark with two executors, and an
application that answers each message through the sink and keeps the log as a Delta table. ``rounds.py`` kills
the driver, workers, executors, the leader and followers. After each round ``counting.py`` counts in the
members' own files, without the connector. ``ledger.py`` keeps a line a round in ``results/kills.jsonl``, or
``kills_of_aeron.jsonl``, each with the hash of the one before it. Never here: anything that the application
could not meet in a user's hands. Read ``rounds.py`` first.
"""
