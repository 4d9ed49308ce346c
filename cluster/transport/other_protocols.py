"""What else may speak at a port: known by the first bytes."""

import re

from cluster.protocol.frame import HEADER_LENGTH, header_at
from cluster.protocol.streams import ENVELOPE

_HTTP_2 = re.compile(rb"PRI \* HTTP/2|\x00.{2}\x04.{5}", re.DOTALL)  # a client's preface, a server's SETTINGS
_HTTP_1 = re.compile(rb"HTTP/1|[A-Z]{3,7} /")


def spoken_by(first: bytes) -> str:
    """What is spoken by who says this first, for people; empty where that cannot be known."""
    if _HTTP_2.match(first):
        return "the other side speaks gRPC (HTTP/2), whose endpoints are plain host:port"
    if _HTTP_1.match(first):
        return "the other side speaks HTTP/1, as a metrics_endpoint does"
    if len(first) >= HEADER_LENGTH and header_at(first).stream_id == ENVELOPE:
        return "the other side speaks as members do to each other; expected a member's ingress endpoint"
    return ""
