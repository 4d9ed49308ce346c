"""A filter of entries as a reader's request carries it."""

from cluster.log.entry_filter import TEMPLATE_IDS, EntryFilter
from cluster.protocol.link import LogRequest, Wanted, WantedKind

WANTED_MAX = (
    256  # in one request, which members take up to 4 KiB of; a reader filters by itself what is longer
)


def wanted_of(entry_filter: EntryFilter | None) -> tuple[Wanted, ...]:
    """What to ask a member for: nothing in particular if all is wanted, or if it is too much to say."""
    if entry_filter is None or entry_filter.is_open:
        return ()
    wanted = (
        *(Wanted(WantedKind.ENTRY_TYPE, TEMPLATE_IDS[entry_type]) for entry_type in entry_filter.rows),
        *(Wanted(WantedKind.SESSION, session_id) for session_id in entry_filter.sessions),
        *(Wanted(WantedKind.TEMPLATE, template_id) for template_id in entry_filter.template_ids),
    )
    return wanted if len(wanted) <= WANTED_MAX else ()


def wanted_entries(request: LogRequest) -> EntryFilter:
    """What a reader asks for."""

    def values(kind: WantedKind) -> tuple[int, ...]:
        return tuple(wanted.value for wanted in request.wanted if wanted.kind is kind)

    templates = values(WantedKind.ENTRY_TYPE) or tuple(TEMPLATE_IDS.values())
    return EntryFilter(
        tuple(entry_type for entry_type, template_id in TEMPLATE_IDS.items() if template_id in templates),
        values(WantedKind.SESSION),
        values(WantedKind.TEMPLATE),
    )
