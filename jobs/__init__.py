"""Delta tables of a cluster's Log, and Spark's answers back into it.

Each job is one module with an option list, a source and a sink. What it computes goes from DataFrame to
DataFrame (``TableJob.rows``), so that it can be tested without a cluster. A job runs as
``python -m jobs.NAME`` and under ``spark-submit``. Nothing here knows the cluster's inside: jobs see the
Spark format ``cluster`` and Delta tables only (the demo adds the public client, service and command line).

Tables are kept without Spark, too: :mod:`jobs.delta_rs`. What entries make of a table is said once, by Arrow,
in :mod:`jobs.reductions`: for these functions, for both writers, and for :mod:`jobs.verify`.

Read first: :mod:`jobs.log_to_delta`, the smallest job; then :mod:`jobs.keeping`, how tables are kept;
:mod:`jobs.delta_table`, how a batch goes into a table once; :mod:`jobs.schemas`, what the tables hold.
"""

from jobs.history import as_of

__all__ = ["as_of"]
