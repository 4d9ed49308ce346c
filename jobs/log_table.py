"""The table of the Log: what holds for it whoever writes it, Spark or delta-rs."""

from __future__ import annotations

NAME = "log"
COMMENT = "The committed Log, one row an entry, in the order of position."
# Its columns, which are those of the format ``cluster``, each with its comment.
COLUMNS = {
    "position": "where the entry's first frame starts, in bytes of the Log; unique",
    "endPosition": "position after the entry, excluded: what services see",
    "leadershipTermId": "the leadership term that the entry belongs to",
    "entryType": "SESSION_MESSAGE, SESSION_OPEN, SESSION_CLOSE, TIMER, CLUSTER_ACTION or NEW_LEADERSHIP_TERM",
    "timestamp": "cluster time of the entry",
    "clusterTime": "cluster time as the Log has it, in the cluster's time unit",
    "clusterSessionId": "session entries: the session; negative for a service's messages to its own cluster",
    "correlationId": "SESSION_OPEN: of the connect request; TIMER: of the timer",
    "payload": "SESSION_MESSAGE: what was sent, reassembled from its fragments",
    "responseStreamId": "SESSION_OPEN: stream that the client listens on",
    "responseChannel": "SESSION_OPEN: channel that the client listens on",
    "encodedPrincipal": "SESSION_OPEN: who the authenticator says the client is",
    "closeReason": "SESSION_CLOSE: CLIENT_ACTION, SERVICE_ACTION or TIMEOUT",
    "action": "CLUSTER_ACTION: what the leader asked for, such as SNAPSHOT",
    "actionFlags": "CLUSTER_ACTION: its flags; 1 means for standbys only",
    "termBaseLogPosition": "NEW_LEADERSHIP_TERM: position where the term begins",
    "leaderMemberId": "NEW_LEADERSHIP_TERM: the member that leads the term",
    "logSessionId": "NEW_LEADERSHIP_TERM: session id of the leader's log publication",
    "timeUnit": "NEW_LEADERSHIP_TERM: unit of clusterTime",
    "appVersion": "NEW_LEADERSHIP_TERM: the services' semantic version as a number",
}
# Readers skip files by these columns; payloads and the rest need no statistics.
PROPERTIES = {
    "delta.dataSkippingStatsColumns": "position,endPosition,leadershipTermId,timestamp,clusterSessionId",
}
WRITER = "cluster.writer"  # property of a table: who keeps it, SPARK unless it is there
SPARK, DELTA_RS = "spark", "delta-rs"
