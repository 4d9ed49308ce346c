"""Streams with option ``service``, asked as Spark asks them."""

import pickle
from itertools import pairwise

from spark_connector.data_source import ClusterDataSource

BOOK = "examples.order_book:OrderBook"


def stream(directory, service=BOOK, **options):
    where = {} if directory is None else {"clusterDir": str(directory)}
    given = {**where, "startingOffsets": "earliest", "service": service, **options}
    source = ClusterDataSource(given)
    return source.streamReader(source.schema())


def offsets(reader, start=None):
    """The offsets between micro-batches, as Spark writes them down."""
    found = [start or reader.initialOffset()]
    while (end := reader.latestOffset(found[-1], reader.getDefaultReadLimit())) != found[-1]:
        found.append(end)
    return found


def rows(reader, start, end):
    (part,) = pickle.loads(pickle.dumps(reader.partitions(start, end)))
    return [row for batch in reader.read(part) for row in batch.to_pylist()]


def each(reader, places):
    return [rows(reader, *pair) for pair in pairwise(places)]
