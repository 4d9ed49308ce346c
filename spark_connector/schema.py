"""The row of the source, and which columns of it a reader was asked for.

``ROW_SCHEMA`` and ``FRAME_SCHEMA`` of ``cluster.log.columns`` say the same in Arrow's words; it is written
again here because making a DataFrame must not load the kernels. A test holds the two together.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from cluster.errors import ConfigurationError
from spark_connector.columns import Columns
from spark_connector.decoding.decoded import DECODED

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

ROW_COLUMNS: Columns = {
    "position": ("BIGINT", "where the entry's first frame starts, in bytes of the Log; unique"),
    "endPosition": ("BIGINT", "position after the entry, excluded: what services see"),
    "leadershipTermId": ("BIGINT", "the leadership term that the entry belongs to"),
    "entryType": (
        "STRING",
        "SESSION_MESSAGE, SESSION_OPEN, SESSION_CLOSE, TIMER, CLUSTER_ACTION or NEW_LEADERSHIP_TERM",
    ),
    "timestamp": ("TIMESTAMP", "cluster time of the entry"),
    "clusterTime": ("BIGINT", "cluster time as the Log has it, in the cluster's time unit"),
    "clusterSessionId": (
        "BIGINT",
        "session entries: the session; negative for a service's messages to its own cluster",
    ),
    "correlationId": ("BIGINT", "SESSION_OPEN: of the connect request; TIMER: of the timer"),
    "payload": ("BINARY", "SESSION_MESSAGE: what was sent, reassembled from its fragments"),
    "responseStreamId": ("INT", "SESSION_OPEN: stream that the client listens on"),
    "responseChannel": ("STRING", "SESSION_OPEN: channel that the client listens on"),
    "encodedPrincipal": ("BINARY", "SESSION_OPEN: who the authenticator says the client is"),
    "closeReason": ("STRING", "SESSION_CLOSE: CLIENT_ACTION, SERVICE_ACTION or TIMEOUT"),
    "action": ("STRING", "CLUSTER_ACTION: what the leader asked for, such as SNAPSHOT"),
    "actionFlags": ("INT", "CLUSTER_ACTION: its flags; 1 means for standbys only"),
    "termBaseLogPosition": ("BIGINT", "NEW_LEADERSHIP_TERM: position where the term begins"),
    "leaderMemberId": ("INT", "NEW_LEADERSHIP_TERM: the member that leads the term"),
    "logSessionId": ("INT", "NEW_LEADERSHIP_TERM: session id of the leader's log publication"),
    "timeUnit": ("STRING", "NEW_LEADERSHIP_TERM: unit of clusterTime"),
    "appVersion": ("INT", "NEW_LEADERSHIP_TERM: the services' semantic version as a number"),
}
# Of the entry's first frame, with includeFrameHeader.
FRAME_COLUMNS: Columns = {
    "frameFlags": (
        "INT",
        "of the entry's first frame: 192 for an entry in one frame, 128 for the first of several",
    ),
    "termId": ("INT", "term buffer that its first frame lies in"),
    "termOffset": ("INT", "where it lies in there"),
    "frameSessionId": (
        "INT",
        "the log's session id, or the frame's checksum where the member records checksums",
    ),
    "streamId": ("INT", "stream of the log"),
    "reservedValue": ("BIGINT", "as Aeron has it"),
}
_ALL_COLUMNS = {**ROW_COLUMNS, **FRAME_COLUMNS}
_BY_LOWER_NAME = {name.lower(): name for name in (*_ALL_COLUMNS, DECODED)}


def ddl(names: Iterable[str], decoded: str = "", more: Mapping[str, str] = MappingProxyType({})) -> str:
    """The schema with the columns ``names``, in their spelling, and comments on those of the log; ``decoded``
    is the type of that column.

    ``more``: columns that are not the log's.
    """
    others = {name: (kind, "") for name, kind in {DECODED: decoded, **more}.items()}
    columns = {name.lower(): column for name, column in (_ALL_COLUMNS | others).items()}
    return ", ".join(f"{name} {_type_and_comment(*columns[name.lower()])}" for name in names)


def _type_and_comment(kind: str, comment: str) -> str:
    """The type as it means the same in each session: TIMESTAMP may stand for one without a zone."""
    escaped = comment.replace("'", r"\'")
    type_name = "TIMESTAMP_LTZ" if kind == "TIMESTAMP" else kind
    return f"{type_name} COMMENT '{escaped}'" if comment else type_name


def row_columns(names: Iterable[str]) -> tuple[str, ...]:
    """The columns of the log that ``names``, as ``wanted_columns`` gave them, stand for."""
    return tuple(_BY_LOWER_NAME[name.lower()] for name in names)


def check_columns(names: Sequence[str], has_frame_header: bool, has_decoded: bool = False) -> None:
    """Raise ConfigurationError for a name that the log does not have, and for one that occurs twice."""
    known = {**(_ALL_COLUMNS if has_frame_header else ROW_COLUMNS), **({DECODED: ""} if has_decoded else {})}
    for name in names:
        if _BY_LOWER_NAME.get(name.lower()) not in known:
            raise ConfigurationError(f"the log has no column {name!r}; {_hint(name, known)}")
    if len({name.lower() for name in names}) < len(names):
        raise ConfigurationError(f"a column occurs twice: {', '.join(names)}")


def _hint(name: str, known: Iterable[str]) -> str:
    if name.lower() == DECODED:
        return "option decode adds it"
    if name.lower() in _BY_LOWER_NAME:
        return "includeFrameHeader=true adds it"
    near = difflib.get_close_matches(name, known, n=3)
    return f"did you mean {', '.join(near)}?" if near else f"it has {', '.join(known)}"


def wanted_columns(
    schema: StructType, has_frame_header: bool = False, has_decoded: bool = False
) -> tuple[str, ...]:
    """The columns of a schema given by the user, in its order and its spelling: Spark compares without case.

    Raises ConfigurationError for a column that the log does not have, has with another type, or that
    is declared NOT NULL. The type of ``decoded`` is its decoder's to judge.
    """
    check_columns(schema.fieldNames(), has_frame_header, has_decoded)
    for column in schema.fields:
        type_name, _ = _ALL_COLUMNS.get(_BY_LOWER_NAME[column.name.lower()], (None, ""))
        given = _type_name(column.dataType.simpleString())
        if type_name is not None and given != type_name:
            raise ConfigurationError(
                f"column {column.name} of the log is {type_name}, the schema says {given}; "
                "read it as it is and cast it afterwards"
            )
        if not column.nullable:
            raise ConfigurationError(f"column {column.name} is declared NOT NULL; every column is nullable")
    return tuple(schema.fieldNames())


def check_sink_schema(schema: StructType) -> None:
    """Raise ConfigurationError unless the rows are what the sink takes: ``payload`` alone, in any case."""
    names = schema.fieldNames()
    if "payload" not in [name.lower() for name in names]:
        raise ConfigurationError(
            f"the sink needs column payload (BINARY or STRING); the rows have {', '.join(names)}"
        )
    if len(names) > 1:
        raise ConfigurationError(
            f"the sink takes column payload alone, the rows have {', '.join(names)}; "
            "drop the others, or put them into the payload"
        )
    type_name = _type_name(schema[0].dataType.simpleString())
    if type_name not in ("BINARY", "STRING"):
        raise ConfigurationError(f"column payload is {type_name}; the sink takes BINARY or STRING")


def _type_name(simple_string: str) -> str:
    """A type as SQL writes it; a string with a collation or a length is still a STRING to Arrow."""
    upper = simple_string.upper()
    return "STRING" if upper.startswith("STRING ") else upper
