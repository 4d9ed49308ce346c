"""The source's readers, asked as Spark asks them, and the rows of ``cluster-snapshot``."""

import itertools
import pickle

from spark_connector.options.cluster_options import SourceOptions
from spark_connector.snapshots.snapshot_source import SnapshotDataSource
from spark_connector.source.readers import ClusterBatchReader, ClusterStreamReader

COLUMNS = ("position", "endPosition", "entryType", "payload")


def stream(log, columns=COLUMNS, **options):
    given = {"clusterDir": str(log.directory), "startingOffsets": "earliest", **options}
    return ClusterStreamReader(SourceOptions.parse(given), columns)


def batch(log, **options):
    return ClusterBatchReader(SourceOptions.parse({"clusterDir": str(log.directory), **options}), COLUMNS)


def rows(reader, partitions):
    """The rows that tasks read, in the order of the partitions, as tuples; each partition travels pickled."""
    found = []
    for partition in pickle.loads(pickle.dumps(partitions)):
        for record_batch in reader.read(partition):
            found += zip(*(column.to_pylist() for column in record_batch.columns))
    return found


def snapshot_rows(**options):
    """The rows of ``cluster-snapshot``, as mappings by column."""
    source = SnapshotDataSource(options)
    reader = source.reader(source.schema())
    return [
        row
        for partition in reader.partitions()
        for record_batch in reader.read(partition)
        for row in record_batch.to_pylist()
    ]


def payloads(reader, partitions):
    return [row[3] for row in rows(reader, partitions) if row[2] == "SESSION_MESSAGE"]


def joined(lists):
    return list(itertools.chain.from_iterable(lists))


def micro_batches(reader, limit=None):
    """Run the reader as Spark does until there is nothing new; yield the payloads of each micro-batch."""
    limit = limit or reader.getDefaultReadLimit()
    start = reader.initialOffset()
    while (end := reader.latestOffset(start, limit)) != start:
        yield payloads(reader, reader.partitions(start, end))
        start = end
