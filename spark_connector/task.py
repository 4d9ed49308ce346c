"""Which task this is, the lane that it writes in each of its attempts, and the process it runs in."""

import gc
import sys
from functools import cache

from pyspark import TaskContext

from cluster.errors import ApplicationUnknown, ClusterError, ConfigurationError
from cluster.protocol.lane import Lane

# Spark's own names of what it gives the tasks of a streaming query.
QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"

WAY_OUT = (
    ". See whether rows of this micro-batch are in the log. If none are, start the query once with option "
    "failOnUnknownQuery=false; else over a new checkpoint, from where it stopped"
)


def _task_name() -> str:
    """The task's partition and attempt, and the batch and query that it belongs to, if any."""
    context = TaskContext.get()
    if context is None:
        return "outside a task"
    task = f"partition {context.partitionId()}, attempt {context.attemptNumber()}"
    query_id, batch_id = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    return task if query_id is None else f"batch {batch_id} of query {query_id}, {task}"


def add_task_name(error: ClusterError, cluster_name: str | None = None) -> None:
    """Put the task before what the error says, and the cluster where there are several.

    Of a query that the cluster does not know it says behind it what to do.
    """
    where = _task_name() if cluster_name is None else f"{_task_name()}, cluster {cluster_name}"
    way_out = WAY_OUT if isinstance(error, ApplicationUnknown) else ""
    error.args = (f"{where}: {error}{way_out}",)


def lane_of_stream(*, is_known: bool) -> Lane:
    """The lane of a task of a micro-batch.

    ``is_known``: after the first micro-batch the cluster is to know the query.
    Raises ConfigurationError where Spark does not say of which query and batch it is.
    """
    context = TaskContext.get()
    query_id, batch_id = (
        None if context is None else context.getLocalProperty(name) for name in (QUERY_ID, BATCH_ID)
    )
    if context is None or query_id is None or batch_id is None:
        raise ConfigurationError(
            f"{QUERY_ID} of the task is {query_id} and {BATCH_ID} {batch_id}; expected both, by which its "
            "rows are known when it runs again, or option deliveryMode at-least-once"
        )
    batch = int(batch_id)
    return Lane(query_id, context.partitionId(), batch, is_known=is_known and batch > 0)


def lane_of_batch(application: str, version: int) -> Lane:
    """The lane of a task of a batch write that has a name and a number."""
    context = TaskContext.get()
    assert context is not None, "Spark writes in tasks"
    return Lane(application, context.partitionId(), version)


@cache  # once a process
def spare_imports_to_the_collector() -> None:
    """Take what is imported out of the garbage collector's sight, in a Python worker of Spark.

    A worker that waits for its next task collects garbage first (the daemon of PySpark): with the modules of
    numba, pyarrow and grpc that took 40 to 60 ms of each micro-batch.
    """
    main = sys.modules["__main__"].__spec__
    if main is not None and main.name == "pyspark.daemon":
        gc.collect()
        gc.freeze()
