"""What options say of a replay: of a batch (``directory_options.py``) and of a stream."""

from spark_connector.values import some_of, whole_number, wrong_value

# The rows of a replay: what the service sends, what it raises, what it saves, and how that compares.
REPLAY_KINDS = (
    "EGRESS",
    "SERVICE_MESSAGE",
    "SCHEDULE_TIMER",
    "CANCEL_TIMER",
    "CLOSE_SESSION",
    "ERROR",
    "STATE",
    "SNAPSHOT",
)
# Of a stream: all that a service sends and raises. Its state would be a row for each trigger.
STREAM_KINDS = REPLAY_KINDS[:-2]
# Options of a read that choose among rows, tasks or copies of the log: a service takes the log as it is.
# Where snapshots do not come with the log, it cannot begin after the log's head.
NOT_OF_SERVICES = frozenset(
    {
        "aeronArchive",
        "consensusEndpoints",
        "exportDir",
        "failOnDataLoss",
        "minPartitions",
        "maxPartitions",
        "maxBytesPerPartition",
        "rowsPerBatch",
        "entryTypes",
        "columns",
        "includeFrameHeader",
        "decode",
        "sessions",
        "templateIds",
        "pushFilters",
    }
)


parse_service_id = whole_number(0, 9, "a service id from 0 to 9")
parse_kinds = some_of(*REPLAY_KINDS)


def parse_stream_kinds(name: str, value: str) -> tuple[str, ...]:
    """Snapshots of members come later than what a stream reads: only a batch can compare with them."""
    kinds: tuple[str, ...] = parse_kinds(name, value)
    if "SNAPSHOT" in kinds:
        raise wrong_value(name, value, "no SNAPSHOT: format cluster-replay compares snapshots, as a batch")
    return kinds
