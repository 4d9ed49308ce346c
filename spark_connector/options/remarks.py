"""Options that are right and may not do what was meant; pure, as ``cluster_options.py``."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from spark_connector.decoding.decoded import DECODED
from spark_connector.options.cluster_options import SinkOptions, SourceOptions
from spark_connector.options.places import GROUP, Instant

# What says how a stream goes on; a batch read is one range of the log.
STREAM_OPTIONS = (
    "maxEntriesPerTrigger",
    "maxBytesPerTrigger",
    "minEntriesPerTrigger",
    "maxTriggerDelay",
    "readUncommitted",
    "consumerGroup",
)
# What Spark takes among the options of a stream that is written, as users spell it.
QUERY_OPTIONS = (
    "checkpointLocation",
    "queryName",
    "asyncProgressTrackingEnabled",
    "asyncProgressTrackingCheckpointIntervalMs",
)
OVER_AERON = ("consensusEndpoints", "aeronArchive")
# Options that say something of one of others.
NEEDS: dict[str, tuple[str, ...]] = {
    "decodeMode": ("decode",),
    "startingOffsetsByTimestampStrategy": ("startingTimestamp",),
    "maxTriggerDelay": ("minEntriesPerTrigger",),
    "readUncommitted": ("clusterDir",),
    "clusterId": OVER_AERON,
    "aeronReplaysMax": OVER_AERON,
    "tlsCaFile": ("endpoints",),
    "authTokenFile": ("endpoints", *OVER_AERON),
    "user": ("endpoints", *OVER_AERON),
}


def remarks(given: Mapping[str, str], parsed: Sequence[SourceOptions], *, is_stream: bool) -> Iterator[str]:
    """Lines for who has ``given`` them; ``parsed`` are the options of each cluster."""
    yield from _unused(given, parsed, is_stream)
    for option in parsed:
        if option.decode and option.columns and DECODED not in option.columns:
            columns = ",".join(option.columns)
            yield f"option decode does nothing, for option columns is {columns}, without {DECODED}"
        for name, place in (
            ("startingTimestamp", option.starting_timestamp),
            ("endingTimestamp", option.ending_timestamp),
        ):
            if place is not None and (meant := _meant_otherwise(place)):
                yield f"option {name} is {place.text} in milliseconds, {_text(place.epoch_us)}; {meant}"


def remarks_of_batch_write(given: Mapping[str, str], parsed: SinkOptions) -> Iterator[str]:
    """As ``remarks``, of a write that belongs to no query."""
    known = {name.lower() for name in given}
    instead = (
        "" if parsed.txn_app_id else ". txnAppId and txnVersion make a write known when it is made again"
    )
    for name in QUERY_OPTIONS:
        if name.lower() in known:
            yield f"option {name} does nothing in a batch write; it is for a stream{instead}"
    if "checkorder" in known and parsed.check_order and parsed.txn_app_id is None:
        yield (
            "option checkOrder does nothing without txnAppId, which is not given: a write that is made again "
            "sends all of its rows again"
        )


def _meant_otherwise(place: Instant) -> str:
    """What a number may have been meant to be that is of 1970 in milliseconds, and what to give then; empty
    for any other time.
    """
    if place.text.isdigit() and len(place.text) == 10:
        return f"if seconds were meant, give {place.text}000 ({_text(1_000_000 * int(place.text))})"
    if re.fullmatch(r"(19|20)[0-9]{6}", place.text):
        year, month, day = place.text[:4], place.text[4:6], place.text[6:]
        return f"if a date was meant, give {year}-{month}-{day}T00:00:00Z"
    return ""


def _text(epoch_us: int) -> str:
    return f"{datetime.fromtimestamp(epoch_us // 1_000_000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _unused(given: Mapping[str, str], parsed: Sequence[SourceOptions], is_stream: bool) -> Iterator[str]:
    """A line for each name of ``given`` that does nothing in the read that is made."""
    known = {name.partition(".")[0].lower() for name in given}
    if not any(options.read_uncommitted for options in parsed):
        known.discard("readuncommitted")

    def is_given(name: str) -> bool:
        return name.lower() in known

    if is_stream:
        if any(options.push_filters for options in parsed):
            yield (
                "option pushFilters does nothing in a stream, for Spark pushes no filters into one; "
                "entryTypes, sessions and templateIds leave out entries there"
            )
    else:
        # A group is read where the read begins there; it is not reported for.
        begins_at_group = any(options.starting_offsets == GROUP for options in parsed)
        for name in STREAM_OPTIONS:
            if is_given(name) and not (name == "consumerGroup" and begins_at_group):
                yield f"option {name} does nothing in a batch read; it is for a stream"
    for name, needed in NEEDS.items():
        if is_given(name) and not any(map(is_given, needed)) and (is_stream or name not in STREAM_OPTIONS):
            yield f"option {name} does nothing without {', '.join(needed)}, which is not given"
