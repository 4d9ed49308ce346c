"""Tables at positions of the Log: what the commits of the jobs say, and the version that goes so far."""

from __future__ import annotations

import json
from collections.abc import Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple

from cluster import ConfigurationError, DataLoss, PositionToken, parse_token
from jobs.delta_table import delta_table, read
from spark_connector.log import SourceLog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


ALL = (1 << 31) - 1
RECENT = 100  # commits in which the jobs' last one is looked for: those between are of OPTIMIZE and the like

# What gives a table other rows than its job's last commit left; that commit's position stays in its log.
_REPLACING = ("RESTORE", "CLONE", "CONVERT", "REPLACE TABLE", "CREATE OR REPLACE TABLE")


class Version(NamedTuple):
    """A version of a table, and how far in the Log it goes; ordered by that."""

    position: int
    version: int
    cluster: str | None


class Recent(NamedTuple):
    """What a commit says of itself; several of them are newest first."""

    version: int
    operation: str
    parameters: dict[str, Any]
    user_metadata: str | None

    @property
    def replaces(self) -> bool:
        """Whether it is no job's, and the rows after it are not those before it and more."""
        is_overwrite = self.operation == "WRITE" and self.parameters.get("mode") == "Overwrite"
        return (is_overwrite or self.operation.startswith(_REPLACING)) and not _token(self.user_metadata)


def tokens_of_batch(spark: SparkSession, checkpoint: str, batch_id: int) -> tuple[int, PositionToken]:
    """How far the micro-batch before went, and the token of its own end, both written before it runs."""
    paths = [f"{checkpoint}/offsets/{number}" for number in (batch_id - 1, batch_id) if number >= 0]
    rows = spark.read.text(paths, wholetext=True).collect()
    ends = sorted((parse_token(row.value.splitlines()[-1]) for row in rows), key=lambda end: end.position)
    return ends[0].position if batch_id else 0, ends[-1]


def token_text(token: PositionToken, seen: int) -> str:
    """``token``, and the version of the table at which its job looked before it made the commit."""
    return json.dumps(json.loads(token.to_text()) | {"seen": seen})


def recent(spark: SparkSession, table: str, count: int | None = None) -> list[Recent]:
    """The newest ``count`` commits of ``table``; None: ``RECENT``, or all where none of them is its job's."""
    if count is None:
        found = recent(spark, table, RECENT)
        is_enough = len(found) < RECENT or any(_token(commit.user_metadata) for commit in found)
        return found if is_enough else recent(spark, table, ALL)
    commits = delta_table(spark, table).history(count)
    return [
        Recent(row.version, row.operation, row.operationParameters or {}, row.userMetadata)
        for row in commits.select("version", "operation", "operationParameters", "userMetadata").collect()
    ]


def versions(spark: SparkSession, table: str) -> list[Version]:
    """The versions of ``table`` that say how far they go, in the order of the Log."""
    return _versions(recent(spark, table, ALL))


def _versions(commits: Sequence[Recent]) -> list[Version]:
    return sorted(
        Version(token.position, commit.version, token.cluster)
        for commit in commits
        if (token := _token(commit.user_metadata))
    )


def check_log(spark: SparkSession, table: str, log: SourceLog) -> int | None:
    """How far ``table`` goes, as its commits say; None where they do not.

    Raises ConfigurationError where they say that it is of another log, or another history of it.
    """
    commits = recent(spark, table)
    token = goes_to = token_of(commits)
    newest = next(filter(None, (_token(commit.user_metadata) for commit in commits)), None)
    if token is None and newest is not None:
        token = newest._replace(term=None)  # of rows that are not there any more, but of the same cluster
    if token is not None:
        check_token(table, token, log)
    return None if goes_to is None else goes_to.position


def check_token(table: str, token: PositionToken, log: SourceLog) -> None:
    """Raise ConfigurationError where ``token``, of a table, is of another log, or another history of it."""
    if not token.is_of(log.cluster):
        raise ConfigurationError(
            f"table {table} is of cluster {token.cluster} (position {token.position}), but what is read is "
            f"cluster {log.cluster}; expected a table of that cluster's log, or a new one"
        )
    if why := log.other_history(token):
        raise ConfigurationError(
            f"table {table} stands at {why}; expected a new table, or this one with a version restored that "
            "goes no further than the restored log did"
        )


def token_of(commits: Sequence[Recent]) -> PositionToken | None:
    """How far a table goes whose newest commits these are; None where they do not say.

    A position holds for the rows that were there when it was written down. So it does not hold after a
    RESTORE: there the commits up to the version that was restored say it.
    """
    newest, _ = _of_job(commits)
    return None if newest is None else _token(newest.user_metadata)


def _of_job(commits: Sequence[Recent]) -> tuple[Recent | None, Sequence[Recent]]:
    """The newest commit of its job whose rows are there, and those before it."""
    for i, commit in enumerate(commits):
        if _token(commit.user_metadata):
            return commit, commits[i + 1 :]
        if commit.replaces:
            return _of_job(_restored(commit, commits[i + 1 :]))
    return None, ()


def _restored(commit: Recent, older: Sequence[Recent]) -> list[Recent]:
    """The ``older`` commits up to the version that ``commit`` has restored; none where it is not said."""
    target = str(commit.parameters.get("version"))  # None in a RESTORE to a time, and in others
    return [other for other in older if other.version <= int(target)] if target.isdecimal() else []


def replaced_by(commits: Sequence[Recent]) -> str:
    """What has replaced the rows of the job's newest commit, as ``RESTORE (version 4)``; else empty."""
    for commit in commits:
        if commit.replaces:
            return f"{commit.operation} (version {commit.version})"
        if _token(commit.user_metadata):
            break
    return ""


def unseen(commits: Sequence[Recent]) -> str:
    """What the job's newest commit did not know of, as ``RESTORE (version 4)``; else empty.

    It came between the job's last look at the table and the commit: another job's commit, or what replaced
    rows. So the commit goes on beyond the rows that were there, or has some of them again.
    """
    newest, older = _of_job(commits)
    if newest is None:
        return ""
    seen = json.loads(newest.user_metadata or "").get("seen", newest.version)
    between = [other for other in older if other.version > seen]
    wrong = next((other for other in between if other.replaces or _token(other.user_metadata)), None)
    return "" if wrong is None else f"{wrong.operation} (version {wrong.version})"


def check_rows_are_its_own(
    spark: SparkSession, table: str, since: int, begin: int, expected: str, least: int = 0
) -> tuple[int, int]:
    """Its version, and how far in the Log its commits say that it goes, 0 where they do not.

    Raises ConfigurationError where its job, which goes on from log position ``begin``, would leave rows out.
    Its rows may have been replaced up to version ``since``, and it has had version ``least``. What was
    ``expected`` instead is the caller's to say. What a commit did not know of is refused whenever it came. Of
    a table that its job alone writes two commits say all.
    """
    commits = recent(spark, table, 2)
    if not all(_token(commit.user_metadata) for commit in commits):
        commits = recent(spark, table)
    if by := unseen(commits):
        raise ConfigurationError(
            f"table {table} lacks entries of the Log or has some twice: {by} came while its job made a "
            "commit; expected a table that one job keeps: rebuild it, or restore an earlier version"
        )
    if by := replaced_by([commit for commit in commits if commit.version > since]):
        raise ConfigurationError(f"table {table} had its rows replaced by {by}; expected {expected}")
    token = token_of(commits)
    if token is None and (version := commits[0].version) < least:
        raise ConfigurationError(
            f"table {table} is another one, at version {version}, and was at {least}; expected {expected}"
        )
    goes_to = 0 if token is None else token.position
    if token is not None and goes_to < begin:
        raise ConfigurationError(
            f"table {table} goes to position {goes_to:,} of the Log, and its checkpoint on from {begin:,}; "
            f"expected {expected}"
        )
    return commits[0].version, goes_to


def newest_version(spark: SparkSession, table: str, latest: int | None = None) -> Version:
    """The version that goes farthest, up to ``latest``, since the last RESTORE. Raises DataLoss."""
    commits = recent(spark, table, ALL)
    known = [found for found in _versions(commits) if latest is None or found.version <= latest]
    if not known:
        raise DataLoss(f"no commit of table {table} says how far in the Log it goes: run its job once")
    replaced = next((commit.version for commit in commits if commit.replaces), -1)
    return max(known, key=lambda found: (found.version > replaced, found))


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
