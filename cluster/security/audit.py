"""The audit log: one line for each refusal and each action of an administrator, in a file that is bounded.

    {"time": "2026-01-31T12:00:00Z", "peer": "10.0.0.7", "principal": "alice", "what": …, "why": …}
    {"time": …, "peer": "10.0.0.8", "principal": "operator", "what": "SNAPSHOT", "outcome": "done"}

A flood of them is counted, not written: beyond ten at once and one a second the next line says how many
were left out. At 1 MiB the file becomes ``audit.log.1``, in place of the one before.
"""

import json
import time

from cluster.security.line_file import LineFile
from cluster.transport.clock import monotonic_ns

BYTES_MAX = 1024 * 1024
LINES_AT_ONCE = 10
LINE_INTERVAL_NS = 1_000_000_000
TEXT_LENGTH_MAX = 256  # of a field: names come from strangers


class AuditLog(LineFile):
    """Takes lines from any thread. What the disk does not take is counted as left out."""

    def __init__(self, path: str, bytes_max: int = BYTES_MAX) -> None:
        """Raises StorageError."""
        super().__init__(path, bytes_max)
        self._allowed = float(LINES_AT_ONCE)
        self._counted_ns = monotonic_ns()
        self._left_out = 0

    def refused(self, peer: str, encoded_principal: bytes, what: str, why: str) -> None:
        """Write that ``peer`` was refused ``what``. ``why`` holds no secret."""
        self._note(peer, encoded_principal, what, why=why)

    def administered(self, peer: str, encoded_principal: bytes, what: str, outcome: str) -> None:
        """Write that ``peer`` had the right to have ``what`` done, and what came of it."""
        self._note(peer, encoded_principal, what, outcome=outcome)

    def _note(self, peer: str, encoded_principal: bytes, what: str, **more: str) -> None:
        fields = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "peer": peer,
            "principal": encoded_principal.decode(errors="replace")[:TEXT_LENGTH_MAX],
            "what": what,
            **{key: text[:TEXT_LENGTH_MAX] for key, text in more.items()},
        }
        with self._lock:
            if not self._may_write():
                self._left_out += 1
                return
            if self._left_out:
                fields["left_out"] = str(self._left_out)
            self._write(json.dumps(fields).encode() + b"\n")

    def _may_write(self) -> bool:
        now_ns = monotonic_ns()
        self._allowed += (now_ns - self._counted_ns) / LINE_INTERVAL_NS
        self._allowed = min(self._allowed, LINES_AT_ONCE)
        self._counted_ns = now_ns
        if self._allowed < 1:
            return False
        self._allowed -= 1
        return True

    def _write(self, line: bytes) -> None:
        try:
            self.append(line)
            self._left_out = 0
        except OSError:
            self._left_out += 1
