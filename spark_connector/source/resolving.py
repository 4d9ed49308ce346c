"""Where in a log the places lie that options name. What cannot be meant fails before anything is read."""

from cluster.errors import ConfigurationError
from cluster.protocol.token import is_one_log
from spark_connector.log import SourceLog
from spark_connector.offsets import Offset
from spark_connector.options.cluster_options import LATEST_STRATEGY, SourceOptions
from spark_connector.options.places import EARLIEST, LATEST, GroupBegin, Instant, NamedPlace, TermBegin


def resolve_start(log: SourceLog, options: SourceOptions, default: Offset, end: int) -> int:
    """Where a read begins. Raises as ``resolve``, and ConfigurationError for a time without entries after it,
    unless the strategy is to begin at ``end`` then.
    """
    named = options.start(default)
    position = resolve(log, named, end)
    if isinstance(named.place, Instant) and position == end and options.starting_strategy != LATEST_STRATEGY:
        raise ConfigurationError(
            f"option {named.option} is {named.place.text!r}, after the last entry of the log, which ends at "
            f"position {end}; startingOffsetsByTimestampStrategy={LATEST_STRATEGY} begins there"
        )
    return position


def resolve(log: SourceLog, named: NamedPlace, end: int) -> int:
    """The position that an option stands for, up to ``end``. Raises ConfigurationError, LogPurged."""
    option, place = named
    if isinstance(place, Instant):
        found = log.first_entry("timestamp", place.epoch_us, end)
        return end if found is None else found
    if isinstance(place, GroupBegin):
        return _group_begin(log, option, end)
    if isinstance(place, TermBegin):
        return _term_begin(log, option, place.leadership_term_id, end)
    return _position(log, option, place, end)


def _position(log: SourceLog, option: str, wanted: Offset, end: int) -> int:
    _check_cluster(log, option, wanted)
    position = wanted.position
    if position == EARLIEST.position:
        return min(log.earliest(), end)
    if position == LATEST.position:
        return end
    if position > end:
        raise ConfigurationError(
            f'option {option} is {{"position": {position}}}, beyond the end of the log, which is {end} '
            f"(cluster {log.cluster or 'without any entry'})"
        )
    if why := log.other_history(wanted):
        raise ConfigurationError(f"option {option} is {why}")
    position = log.retained(position)
    _check_entry_begin(log, option, position)
    return position


def _group_begin(log: SourceLog, option: str, end: int) -> int:
    """Where the group is; all of the log is new to one that never reported."""
    position = log.group_position()
    if position is not None:
        return _position(log, option, Offset(None, position), end)
    start = log.earliest()
    if start > 0:
        what = f"where consumer group {log.group} is was asked for, which has no report left"
        return log.after_purge(what, start)
    return 0


def _term_begin(log: SourceLog, option: str, term_id: int, end: int) -> int:
    """Where the NewLeadershipTermEvent of a term is."""
    begin = log.first_entry("leadershipTermId", term_id, end)
    entry = {} if begin is None else log.entry_at(begin, ("leadershipTermId", "entryType"))
    if begin is not None and entry == {"leadershipTermId": term_id, "entryType": "NEW_LEADERSHIP_TERM"}:
        return begin
    if begin is not None and begin == log.start_position > 0:
        return log.after_purge(f"the start of term {term_id} of cluster {log.cluster} was asked for", begin)
    following = f"the next one is of term {entry['leadershipTermId']}" if entry else "it ends before"
    raise ConfigurationError(
        f'option {option} is {{"term": {term_id}}}, but the log has no entry of that term: {following}'
    )


def _check_cluster(log: SourceLog, option: str, wanted: Offset) -> None:
    """Raise ConfigurationError when the place that an option gives is of another cluster's log."""
    cluster = log.cluster
    if wanted.cluster is not None and (cluster is None or not is_one_log(wanted.cluster, cluster)):
        raise ConfigurationError(
            f"option {option} is of cluster {wanted.cluster}, but what is read is cluster "
            f"{cluster or 'without any entry'}"
        )


def _check_entry_begin(log: SourceLog, option: str, position: int) -> None:
    """Raise ConfigurationError when ``position``, given by an option, lies within an entry."""
    before, next_begin = log.entries_around(position)
    if next_begin != position:
        raise ConfigurationError(
            f'option {option} is {{"position": {position}}}, which is within an entry; '
            f"around it entries start at {before} and {next_begin}"
        )
