"""What tests of members' identity do with their directories while they stand."""

from cluster.archive.identity_file import IDENTITY_FILE_NAME, read_identity
from cluster.archive.promises_file import read_promises, write_promises
from tests.member.cluster_steps import a_cluster_with_an_entry
from tests.member.in_memory.cluster import SECOND
from tests.member.in_memory.member import DIRECTORY

CLUSTER, ARCHIVE = f"{DIRECTORY}/cluster", f"{DIRECTORY}/archive"
FILES = [f"{folder}/{IDENTITY_FILE_NAME}" for folder in (CLUSTER, ARCHIVE)]
PROMISES = f"{CLUSTER}/promises.dat"


def stopped(members=3, seed=1):
    """A cluster none of whose members runs."""
    cluster, _ = a_cluster_with_an_entry(members, seed)
    cluster.run(SECOND)
    for member in cluster.members:
        member.stop()
    return cluster


def identity_of(member):
    return read_identity(member.files, CLUSTER, ARCHIVE).identity


def make_older(member):
    """As the release before has left it."""
    for path in FILES:
        member.files.unlink(path)
    if (statement := read_promises(member.files, CLUSTER)) is not None:
        write_promises(member.files, CLUSTER, statement.replace(cluster=()))


def starts(cluster, *members, for_ns=SECOND):
    for member in members:
        member.start()
    cluster.run(for_ns)
