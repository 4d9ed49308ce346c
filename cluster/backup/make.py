"""Members' directories of a cluster that gets other members, made of its closed ones (``close.py``).

    last words of a majority of the old ids ──▶ the best log: highest term, then position
                                                the highest candidate term: votes begin after it
    directory with that log ── copied, read whole ──▶ member-N of each new id, in the next generation

The generation follows from the old one, the log's end and the new ids, so it is the same on every host. Two
hosts that were given other logs make two clusters of it, and neither counts anything of the other.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from cluster.archive.identity_file import read_identity
from cluster.backup.close import why_not_counted
from cluster.backup.restore import Founding, MemberFolders, Place, restore_member
from cluster.consensus.histories import history_difference
from cluster.consensus.identity import cluster_difference
from cluster.errors import ConfigurationError
from cluster.protocol.last_words import LastWords
from cluster.protocol.recording_log import RECORDING_LOG_FILE_NAME


class NextMembers(NamedTuple):
    """What the members of the next generation begin with: the log of the member that said ``best``."""

    best: LastWords
    founding: Founding
    generation: int


def next_members(words: Sequence[LastWords], member_ids: tuple[int, ...]) -> NextMembers:
    """What ``member_ids``, ascending, begin with. Raises ConfigurationError unless the words suffice."""
    if not member_ids or list(member_ids) != sorted(set(member_ids)) or member_ids[0] < 0:
        raise ConfigurationError(f"members {_list(member_ids)}: expected ids of new members, each once")
    stated: dict[int, LastWords] = {}
    for one in words:
        first, id_ = words[0], one.member_id
        if one.identity.cluster_id != first.identity.cluster_id:
            difference: str | None = f"cluster {one.identity.cluster_id}, not {first.identity.cluster_id}"
        else:
            difference = cluster_difference(one.identity, first.identity)
        if difference is not None or id_ not in one.identity.member_ids:
            raise ConfigurationError(
                f"the words of member {id_} are not of the cluster of member {first.member_id}: "
                f"{difference or f'its members are {_list(first.identity.member_ids)}'}"
            )
        if stated.setdefault(id_, one) != one:
            raise ConfigurationError(f"member {id_} has two last words: expected those of one directory")
    counted = [one for one in stated.values() if not why_not_counted(one)]
    faults = "".join(
        f"; of member {id_} {why_not_counted(one)}" for id_, one in stated.items() if one not in counted
    )
    old_ids = words[0].identity.member_ids if words else ()
    if len(counted) < len(old_ids) // 2 + 1:
        raise ConfigurationError(
            f"the last words of {len(counted)} members count, expected those of {len(old_ids) // 2 + 1} of "
            f"members {_list(old_ids)}{faults}"
        )
    for one, other in combinations(counted, 2):
        if (difference := history_difference(one.history, other.history)) is not None:
            raise ConfigurationError(
                f"the logs of members {one.member_id} (here) and {other.member_id} (there) are of two "
                f"histories: {difference}: expected the last words of one of them alone"
            )
    best = max(counted, key=lambda one: one.log_end)
    candidate_term_id = max(one.candidate_term_id for one in stated.values())
    identity = best.identity.with_members(best.identity.cluster_id, member_ids)
    founding = Founding("members", identity, candidate_term_id, best.log_end)
    return NextMembers(best, founding, founding.generation(*best.log_end))


def source_of(made: NextMembers, closed: Mapping[str, LastWords]) -> str:
    """The closed directory that has the best log, by its path. Raises ConfigurationError without it."""
    best = made.best
    for path, words in closed.items():
        if words.log_end == best.log_end and not why_not_counted(words):
            return path
    raise ConfigurationError(
        f"the best log is that of member {best.member_id}, to {best.log_position} of term "
        f"{best.leadership_term_id}: expected its closed directory, or a copy of that"
    )


def make_member(
    source: MemberFolders, member: Place, made: NextMembers, *, epoch_ms: Callable[[], int]
) -> bool:
    """Make the directory of a member with the log in ``source_of``; False if it was there, made of the same.

    An attempt that failed can be made again. Raises ConfigurationError where ``source`` has another log, or
    ``member`` is another directory; NotAClusterDirectory, DirectoryInUse, LogDamaged, StorageError.
    """
    if _is_made(member, made):
        return False
    restore_member(source, member, founding=made.founding, to_position=None, epoch_ms=epoch_ms)
    return True


def _is_made(member: Place, made: NextMembers) -> bool:
    """Whether it has come to its end; what a crash may have left unsynced then is synced."""
    files, folders = member.files, (f"{member.path}/cluster", f"{member.path}/archive")
    if not files.exists(f"{folders[0]}/{RECORDING_LOG_FILE_NAME}"):
        return False
    found = read_identity(files, *folders).identity
    if found is None or found.generation != made.generation:
        return False
    for folder in folders:
        files.sync_directory(folder)
    return True


def _list(member_ids: tuple[int, ...]) -> str:
    return ", ".join(map(str, member_ids))
