"""``cluster new``: the files that a service of one's own begins with."""

from __future__ import annotations

import keyword
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from cluster.cli.verbs import AsJson, Verb, print_result
from cluster.errors import ConfigurationError, StorageErrors

app = typer.Typer(rich_markup_mode=None, add_completion=False)

EPILOG = """\b
Example:
  cluster new orders

It makes the folder orders: a service, a test of it in memory, a client, a query for Spark, and README.md with
the commands that run them.
"""

SERVICE = '''"""The state of $name, which is the same on every member, and what its clients are answered."""

from __future__ import annotations

from collections.abc import Iterable

from cluster import ClientSession, Cluster, ClusteredService, ExclusivePublication


class $type(ClusteredService):
    """Counts words: a message is a word, and the answer is how often it came. Put your state in its place."""

    def on_start(self, cluster: Cluster, snapshot_image: Iterable[bytes] | None) -> None:
        self.counts: dict[bytes, int] = {}
        for record in snapshot_image or ():  # what on_take_snapshot offered
            count, _, word = record.partition(b" ")
            self.counts[word] = int(count)

    def on_session_message(self, session: ClientSession | None, timestamp: int, buffer: memoryview) -> None:
        word = bytes(buffer)  # the buffer is only valid in this callback
        self.counts[word] = self.counts.get(word, 0) + 1
        if session is not None:
            session.offer(b"%d" % self.counts[word])

    def on_take_snapshot(self, snapshot_publication: ExclusivePublication) -> None:
        for word in sorted(self.counts):  # the same state has to give the same bytes
            snapshot_publication.offer(b"%d " % self.counts[word], word)
'''

TEST = '''"""$type on real members in memory, where time passes only when the test lets it."""

from __future__ import annotations

from cluster.testing import SimulatedCluster
from $name import $type


def test_words_are_counted_whoever_leads() -> None:
    cluster = SimulatedCluster($type)
    client = cluster.connect()
    for word in (b"tea", b"milk", b"tea"):
        client.offer(word)
    cluster.settle()
    assert client.answers == [b"1", b"1", b"2"]

    cluster.take_snapshot()
    cluster.kill(cluster.await_leader())
    client.offer(b"tea")
    cluster.settle()
    assert client.answers[-1] == b"3"
    cluster.check()  # every member has the state that the log gives


if __name__ == "__main__":
    test_words_are_counted_whoever_leads()
    print("passed")
'''

CLIENT = '''"""Sends words to $type, and prints how often each came."""

from __future__ import annotations

import os
import sys

from cluster import ClusterClient

with ClusterClient.connect(os.environ.get("CLUSTER_ENDPOINTS", "127.0.0.1:9000")) as client:
    for word in sys.argv[1:] or ["tea"]:
        print(word, client.request(word.encode(), timeout_s=10).payload.decode())
'''

QUERY = '''"""Reads the log of $type in Spark: which words came, how often, and when last."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else Spark's workers run the first python3 of PATH
spark = SparkSession.builder.getOrCreate()
log = (
    spark.read.format("cluster")
    .option("endpoints", os.environ.get("CLUSTER_ENDPOINTS", "127.0.0.1:9000"))
    .load()
)
log.createOrReplaceTempView("log")
spark.sql("""
    SELECT CAST(payload AS STRING) AS word, count(*) AS times, max(timestamp) AS last
    FROM log WHERE entryType = 'SESSION_MESSAGE' GROUP BY word ORDER BY word
""").show()
'''

README = """# $name

    python test_$name.py                    # on members in memory; pytest finds it, too
    cluster sim $name:$type --seeds 5       # kills, restarts and snapshots: does every member agree?
    cluster up --service $name:$type        # three members, until Ctrl-C

and then, in another terminal:

    python client.py tea milk tea
    cluster log tail
    python query.py                         # with pyspark-cluster[spark] and Java 17
"""

FILES = {
    "$name.py": SERVICE,
    "test_$name.py": TEST,
    "client.py": CLIENT,
    "query.py": QUERY,
    "README.md": README,
}


@app.command(cls=Verb, epilog=EPILOG)
def new(
    name: Annotated[
        str,
        typer.Argument(help="Name of the service's module and folder, such as order_book.", metavar="NAME"),
    ],
    as_json: AsJson = False,
) -> None:
    """Make a folder with a service, its test, a client and a query, all of which run."""
    is_module = name.isidentifier() and not keyword.iskeyword(name) and name not in ("client", "query")
    if not is_module:
        raise ConfigurationError(f"{name!r}: expected a name for a module, such as order_book")
    folder = Path(name)
    if not folder.exists() and find_spec(name) is not None:
        raise ConfigurationError(f"{name!r}: Python has a module of this name, choose another, as my_{name}")
    names = {"name": name, "type": "".join(word.capitalize() for word in name.split("_")) or "Service"}
    with StorageErrors(folder, "cannot be made"):
        folder.mkdir()
        for file, text in FILES.items():
            (folder / Template(file).substitute(names)).write_text(Template(text).substitute(names))
    made = {"dir": name, "service": f"{name}:{names['type']}"}
    print_result(as_json, made, f"{name}: cd {name}, and go on with README.md")
