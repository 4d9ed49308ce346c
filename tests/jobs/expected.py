"""What tables of the Log must have, added up entry by entry; each row with all columns, by its key."""

from __future__ import annotations

import datetime as dt

from jobs.schemas import PENDING, SESSIONS, SNAPSHOT, TERMS, TIMERS


def sessions(entries):
    """Entries are dicts of the columns that they have, here and below."""
    found = {}
    for entry in entries:
        session_id = entry.get("clusterSessionId")
        if session_id is None or session_id < 0:
            continue
        row = found.setdefault(session_id, _row(SESSIONS, session_id, state="OPEN", messages=0, bytes=0))
        position, time, term = entry["position"], entry["timestamp"], entry["leadershipTermId"]
        match entry["entryType"]:
            case "SESSION_OPEN":
                row |= {"openPosition": position, "openedAt": time, "openTermId": term}
                for column in ("correlationId", "responseStreamId", "responseChannel", "encodedPrincipal"):
                    row[column] = entry[column]
                row["lastActivityAt"] = time
            case "SESSION_MESSAGE":
                row["messages"] += 1
                row["bytes"] += entry["payloadLength"]
                row["lastActivityAt"] = time
            case "SESSION_CLOSE":
                row |= {"state": "CLOSED", "closeReason": entry["closeReason"]}
                row |= {"closePosition": position, "closedAt": time, "closeTermId": term}
        row["lastPosition"] = position
    return found


def timers(entries):
    """Those of a snapshot are in front of a TIMER at its position."""
    found = {}
    entries = sorted(entries, key=lambda entry: (entry["position"], entry["entryType"] == "TIMER"))
    for entry in entries:
        kind, position, time = entry["entryType"], entry["position"], entry.get("timestamp")
        if kind == SNAPSHOT:
            pending = {
                e["correlationId"] for e in entries if (e["entryType"], e["position"]) == (PENDING, position)
            }
            for timer, row in found.items():
                if row["state"] == "SCHEDULED" and timer not in pending:
                    row["state"] = "CANCELLED"
        if kind not in ("TIMER", PENDING):
            continue
        timer = entry["correlationId"]
        row = found.setdefault(timer, _row(TIMERS, timer, firings=0))
        if kind == PENDING:
            row |= {"state": "SCHEDULED", "deadline": time, "pendingPosition": position}
            continue
        if row["state"] != "SCHEDULED" or row["deadline"] > time:
            row["deadline"] = None
        row |= {"state": "FIRED", "firedPosition": position, "firedAt": time, "lastPosition": position}
        row |= {"firedTermId": entry["leadershipTermId"], "firings": row["firings"] + 1}
    return found


def terms(entries):
    found = {}
    for entry in entries:
        term = entry["leadershipTermId"]
        row = found.setdefault(term, _row(TERMS, term, entries=0))
        if entry["entryType"] == "NEW_LEADERSHIP_TERM":
            for column in ("leaderMemberId", "termBaseLogPosition", "logSessionId", "timeUnit", "appVersion"):
                row[column] = entry[column]
            row |= {"startPosition": entry["position"], "startedAt": entry["timestamp"]}
        row |= {"endPosition": entry["endPosition"], "endedAt": entry["timestamp"]}
        row |= {"lastPosition": entry["position"], "entries": row["entries"] + 1}
    for term, row in found.items():
        row["state"] = "CURRENT" if term == max(found) else "ENDED"
        if row["startedAt"] is not None:
            row["length"] = row["endPosition"] - row["termBaseLogPosition"]
            row["durationMs"] = (row["endedAt"] - row["startedAt"]) // dt.timedelta(milliseconds=1)
    return found


def _row(layout, key, **values):
    return dict.fromkeys(layout.columns) | {layout.key: key} | values
