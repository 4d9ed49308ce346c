"""Fetches from an archive in a thread of its own, for an agent that may not wait."""

import queue
import threading
from collections.abc import Generator, Sequence
from typing import Generic, TypeVar

from cluster.errors import ClusterError
from cluster.transport.log_client import LogClient, RecordingAnswer

T = TypeVar("T")

ANSWERS_MAX = 8  # in memory: blocks of at most a few MiB
LOOK_S = 0.1  # of a thread whose answers are not taken, whether it is to end


def read_recordings(client: LogClient, recording_ids: Sequence[int]) -> Generator[RecordingAnswer]:
    """What the archive of ``client`` answers for each of the recordings, in their order."""
    try:
        for recording_id in recording_ids:
            yield from client.read_recording(recording_id)
    finally:
        client.close()


class FetchedInThread(Generic[T]):
    """What ``answers`` yields, which is closed in the end."""

    def __init__(self, answers: Generator[T]) -> None:
        self._fetched = answers
        self._answers: queue.Queue[T | ClusterError] = queue.Queue(ANSWERS_MAX)
        self._is_closed = threading.Event()
        threading.Thread(target=self._run, name="recording-fetch", daemon=True).start()

    def poll(self) -> T | None:
        """The next part, None while there is none; never waits. Raises ClusterError when none will come."""
        try:
            answer = self._answers.get_nowait()
        except queue.Empty:
            return None
        if isinstance(answer, ClusterError):
            raise answer
        return answer

    def close(self) -> None:
        """The thread ends by itself, at the latest with the time-out of its client."""
        self._is_closed.set()

    def _run(self) -> None:
        try:
            for answer in self._fetched:
                self._put(answer)
                if self._is_closed.is_set():
                    return
        except ClusterError as error:
            self._put(error)
        except Exception as error:
            self._put(ClusterError(f"{type(error).__name__}: {error}"))
        finally:
            self._fetched.close()

    def _put(self, answer: T | ClusterError) -> None:
        while not self._is_closed.is_set():
            try:
                self._answers.put(answer, timeout=LOOK_S)
                return
            except queue.Full:
                continue
