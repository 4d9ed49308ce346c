"""Tables at positions of the Log: what the commits of the jobs say, and the version that goes so far."""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING, NamedTuple

from cluster import ConfigurationError, DataLoss, PositionToken, parse_token
from jobs.delta_table import delta_table, read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_RECENT = 100  # commits in which the jobs' last one is looked for: those between are of OPTIMIZE and the like


class Version(NamedTuple):
    """A version of a table, and how far in the Log it goes; ordered by that."""

    position: int
    version: int
    cluster: str | None


def token_of_batch(spark: SparkSession, checkpoint: str, batch_id: int) -> str:
    """The position token of the end of a micro-batch, which Spark wrote down before it runs."""
    (offsets,) = spark.read.text(f"{checkpoint}/offsets/{batch_id}", wholetext=True).collect()
    return parse_token(offsets.value.splitlines()[-1]).to_text()


def versions(spark: SparkSession, table: str) -> list[Version]:
    """The versions of ``table`` that say how far they go, in the order of the Log."""
    commits = delta_table(spark, table).history().select("version", "userMetadata").collect()
    return sorted(
        Version(token.position, commit.version, token.cluster)
        for commit in commits
        if (token := _token(commit.userMetadata))
    )


def check_log(spark: SparkSession, table: str, cluster: str | None) -> None:
    """Raise ConfigurationError where the newest commit that says so is of another log than ``cluster``'s."""
    commits = delta_table(spark, table).history(_RECENT).select("userMetadata").collect()
    tokens = (token for commit in commits if (token := _token(commit.userMetadata)))
    token = next(tokens, None)
    if token is not None:
        check_token(table, token, cluster)


def check_token(table: str, token: PositionToken, cluster: str | None) -> None:
    """Raise ConfigurationError where ``token``, of a table, is of another log than ``cluster``'s."""
    if not token.is_of(cluster):
        raise ConfigurationError(
            f"table {table} is of cluster {token.cluster} (position {token.position}), but what is read is "
            f"cluster {cluster}; expected a table of that cluster's log, or a new one"
        )


def is_restored(spark: SparkSession, table: str) -> bool:
    """Whether somebody has brought it back to an earlier version after the last commit of a job."""
    for commit in delta_table(spark, table).history(_RECENT).select("operation", "userMetadata").collect():
        if commit.operation == "RESTORE":
            return True
        if _token(commit.userMetadata):
            break
    return False


def newest_version(spark: SparkSession, table: str, latest: int | None = None) -> Version:
    """The version that goes farthest, of those up to ``latest``.

    Raises DataLoss when none says how far it goes.
    """
    known = [found for found in versions(spark, table) if latest is None or found.version <= latest]
    if not known:
        raise DataLoss(f"no commit of table {table} says how far in the Log it goes: run its job once")
    return known[-1]


def _token(user_metadata: str | None) -> PositionToken | None:
    """None for a commit of somebody else, such as OPTIMIZE."""
    try:
        return None if user_metadata is None else parse_token(user_metadata)
    except ConfigurationError:
        return None


def as_of(spark: SparkSession, table: str, position: int | str) -> DataFrame:
    """``table``, by path or name, as of ``position`` in the Log (excluded), a number or a position token.

    It is the newest version that has nothing from there on: as far as ``position`` where a batch of the job
    ended there, else as far as the batch before (``versions`` says how far). Raises ConfigurationError for
    what is neither, and for a token of another cluster, DataLoss when no version that is left is so old.
    """
    if not isinstance(position, str) and (not isinstance(position, Integral) or position < 0):
        raise ConfigurationError(
            f"position is {position!r}; expected a number from 0 on, or a position token"
        )
    wanted = parse_token(position) if isinstance(position, str) else PositionToken(None, position)
    known = versions(spark, table)
    for version in known:
        if not wanted.is_of(version.cluster):
            raise ConfigurationError(
                f"the token is of cluster {wanted.cluster}, table {table} of {version.cluster}"
            )
    found = max((version for version in known if version.position <= wanted.position), default=None)
    if found is None:
        first = f"the first one left goes to {known[0].position}" if known else "none says how far it goes"
        raise DataLoss(f"table {table} has no version as of position {wanted.position}: {first}")
    return read(spark, table, found.version)
