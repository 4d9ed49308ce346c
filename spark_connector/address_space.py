"""Whether Spark lets its processes of Python have what gRPC needs: else gRPC waits for a thread for ever."""

import resource

from cluster.errors import ConfigurationError

ENOUGH_BYTES = 2 * 1024**3  # numba, Arrow and gRPC reserve so much; what they use is a tenth of it


def check_address_space() -> None:
    """Raise ConfigurationError where less is allowed, with the settings of Spark that say so."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    if allowed != resource.RLIM_INFINITY and allowed < ENOUGH_BYTES:
        raise ConfigurationError(
            f"this process may have {allowed >> 20} MiB of address space; expected {ENOUGH_BYTES >> 20} or "
            "more: raise Spark's spark.executor.pyspark.memory, for processes that plan "
            "spark.sql.planner.pythonExecution.memory, or leave them out"
        )
