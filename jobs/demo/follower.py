"""The Log seen by a reader of its own, live: how many entries of each kind, and when."""

import threading
from collections import Counter, defaultdict

import pyarrow as pa
import pyarrow.compute as pc

from cluster import LogReader
from jobs.demo import counts

COLUMNS = ["entryType", "clusterTime", "payload"]
TURN_S = 0.5


class LogFollower:
    """Counts the committed Log in a thread, by ``LogReader`` alone; ``check`` raises what went wrong."""

    def __init__(self, endpoints: str, start_ms: int) -> None:
        """``start_ms``: the cluster time that counts as second 0 of the run."""
        self.counts: Counter[str] = Counter()
        self.per_second: dict[int, Counter[str]] = defaultdict(Counter)
        self.position = 0
        self._start_ms = start_ms
        self._failure: BaseException | None = None
        self._is_stopping = threading.Event()
        self._reader = LogReader.open(endpoints=endpoints)
        self._thread = threading.Thread(target=self._run, name="log-follower", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._is_stopping.wait(TURN_S):
                self._read_on()
            self._read_on()
        except BaseException as error:
            self._failure = error
        finally:
            self._reader.close()

    def _read_on(self) -> None:
        committed = self._reader.commit_position()
        if committed > self.position:
            for batch in self._reader.batches(self.position, committed, columns=COLUMNS):
                self._count(batch)
            self.position = committed

    def _count(self, batch: pa.RecordBatch) -> None:
        seconds = pc.divide(pc.subtract(batch["clusterTime"], self._start_ms), 1000)
        for second in pc.unique(seconds).to_pylist():
            of_second = counts.of_batch(batch.filter(pc.equal(seconds, second)))
            self.per_second[second] += of_second
            self.counts += of_second

    @property
    def entries(self) -> int:
        return self.counts.total()

    def check(self) -> None:
        """Raise what went wrong on the thread."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Read to the present commit position a last time, and stop."""
        self._is_stopping.set()
        self._thread.join()
        self.check()
