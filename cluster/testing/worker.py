"""A process that plays seeds: ``python -m cluster.testing.worker MEMBERS MESSAGES WATCHED SERVICE …``.

Reads seeds from standard input, a line each, and writes each outcome as a line of JSON. Two of them under
different ``PYTHONHASHSEED`` show whether a service goes by the order of a set or by ``hash``.
"""

import json
import sys
from dataclasses import asdict
from functools import partial

from cluster.service.service_loader import load_service
from cluster.testing.messages import load_messages
from cluster.testing.storm import play


def serve(members: str, messages: str, watched: str, *services: str) -> None:
    makers = [partial(load_service, name) for name in services]
    source = load_messages(messages)
    outcomes, sys.stdout = sys.stdout, sys.stderr  # what a service prints is no outcome
    for line in sys.stdin:
        outcome = play(makers, source, int(line), members=int(members), watched=bool(watched))
        print(json.dumps(asdict(outcome)), file=outcomes, flush=True)


if __name__ == "__main__":
    serve(*sys.argv[1:])
