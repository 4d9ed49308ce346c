"""Whose a session is: its client draws a secret, and the log holds the hash of that.

The hash is a parameter of the session's response channel, ``aeron:ipc?resume-hash=<hex>``, so the log and all
snapshots have it in Aeron's own bytes, and every member can judge. Who reads the log learns the hash, and
cannot resume the session by it. A session without the parameter cannot be resumed.
"""

import hashlib
import hmac

from cluster.protocol.response_channel import parameter, with_parameter

TOKEN_LENGTH = 16
_PARAMETER = "resume-hash"


def with_resume_hash(response_channel: str, token: bytes) -> str:
    """The channel with the hash of ``token`` among its parameters."""
    return with_parameter(response_channel, _PARAMETER, _hash(token))


def resume_hash(response_channel: str) -> str:
    """The hash that the channel holds, empty without one."""
    return parameter(response_channel, _PARAMETER)


def is_token_of(known_hash: str, token: bytes) -> bool:
    """Whether ``token`` is the secret of the hash; takes as long for a wrong one as for the right one."""
    return hmac.compare_digest(known_hash.encode(), _hash(token).encode()) and len(token) == TOKEN_LENGTH


def _hash(token: bytes) -> str:
    return hashlib.sha256(token).hexdigest()
