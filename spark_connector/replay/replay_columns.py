"""The columns of a replay's rows, of a batch and of a stream."""

from spark_connector.columns import Columns
from spark_connector.options.replay_options import REPLAY_KINDS, STREAM_KINDS

NOT_COMPARED = "not compared: "  # begins the message of a row that stands for a member that does not answer

REPLAY_COLUMNS: Columns = {
    "kind": ("STRING", "what the row is: " + ", ".join(REPLAY_KINDS)),
    "beginPosition": ("BIGINT", "where the interval begins"),
    "endPosition": ("BIGINT", "where the interval ends, excluded"),
    "position": ("BIGINT", "the position after the entry at which it was sent, raised or saved"),
    "number": ("BIGINT", "the place of the row among those of its interval, from 0"),
    "clusterTime": ("BIGINT", "the time of the entry, in the time unit of the cluster"),
    "clusterSessionId": ("BIGINT", "EGRESS, CLOSE_SESSION: whose session"),
    "correlationId": ("BIGINT", "SCHEDULE_TIMER, CANCEL_TIMER: the id of the timer"),
    "deadline": ("BIGINT", "SCHEDULE_TIMER: when it is due, in cluster time"),
    "payload": ("BINARY", "EGRESS, SERVICE_MESSAGE: the message; STATE: a record that the service saves"),
    "memberId": ("INT", "SNAPSHOT: the member whose snapshot is compared"),
    "directory": ("STRING", "SNAPSHOT: its directory or, over the network, its endpoint"),
    "isEqual": (
        "BOOLEAN",
        "SNAPSHOT: whether the replay saves what the member has saved; null where the service says that its "
        "snapshots are not to be compared, and for a member that does not answer",
    ),
    "message": (
        "STRING",
        "SNAPSHOT: the first difference, or why none was sought; ERROR: what a callback raised, and where",
    ),
}

# Of a stream: what concerns members' snapshots is of a batch alone.
STREAM_COLUMNS: Columns = {
    name: declared
    for name, declared in REPLAY_COLUMNS.items()
    if name not in ("memberId", "directory", "isEqual")
} | {
    "kind": ("STRING", "what the row is: " + ", ".join((*STREAM_KINDS, "STATE"))),
    "beginPosition": ("BIGINT", "where the micro-batch begins"),
    "endPosition": ("BIGINT", "where the micro-batch ends, excluded"),
    "number": ("BIGINT", "the place of the row among those of its micro-batch, from 0"),
    "message": ("STRING", "ERROR: what a callback raised, and where"),
}
