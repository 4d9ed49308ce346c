"""Random kills while source, transformation, sink and Delta work, and a ledger of what became of the rows.

    python -m benchmarks.kills --kills 500        (make faults KILLS=500)

Three members, a standalone Spark with two executors, and an application that answers each message through the
sink and keeps the log as a Delta table. ``rounds.py`` kills the driver, workers, executors, the leader and
followers. After each round ``counting.py`` counts in the members' own files, without the connector.
``ledger.py`` keeps a line a round in ``results/kills.jsonl``, each with the hash of the one before it. Never
here: anything that the application could not meet in a user's hands. Read ``rounds.py`` first.
"""
