"""Committed log to the services: delivered to a compiled one, and to those in processes as a limit.

As ``service/agent.py`` and ``services/remote_service.py``.
"""

from cluster.archive.recording_words import READ_POSITION, TAKEN_POSITION, advance, end_chunk
from cluster.log.deliver import deliver_run
from cluster.log.frames import DONE, OUT_FULL
from cluster.log.kernel import routine
from cluster.log.message_calls import ANSWERED, STATUS, TAKEN, call_rows, set_columns
from cluster.log.message_columns import COLUMNS, EXTRA, LENGTHS, NUMBERS, SESSION_IDS, TIMESTAMPS
from cluster.log.message_numbers import (
    number_answers,
    number_messages,
    take_back_answers,
    take_back_messages,
)
from cluster.log.session_table import TOUCHED_COUNT
from cluster.member.busy import words as at
from cluster.member.busy.egress import fits_egress, keep_answers, send_egress, send_kept
from cluster.member.busy.remote import give_log
from cluster.member.log.log_words import BASE, COMMIT_POSITION
from cluster.member.services.service_table import POSITION_COUNTER, SERVICE_WORDS


@routine
def serve_committed(t):  # type: ignore[no-untyped-def]
    """Have the services process what is committed; SERVICES leaves those that are Python's to it."""
    w = t.words
    give_log(t)
    if w[at.SERVICE] == at.PYTHON_SERVICE:
        w[at.REASON] |= at.SERVICES
        return
    if w[at.SERVICE] == at.COMPILED_SERVICE:
        _deliver(t)
    if w[at.ROLE] == at.LEADER_ROLE:
        send_kept(t)
        if t.sessions[TOUCHED_COUNT] > 0:
            send_egress(t, 0, t.columns, t.log, 0)


@routine
def _deliver(t):  # type: ignore[no-untyped-def]
    """Deliver it to the compiled service; its answers go out with the acknowledgements.

    What its agent has to see (another entry, a message that the service does not take, an answer that is long
    or cannot be kept here, damage) is left to Python by SERVICES.
    """
    w, cursor = t.words, t.service_cursor
    while cursor[TAKEN_POSITION] < t.member_log[COMMIT_POSITION]:
        rows, base, position = w[at.SERVICE_ROWS], t.log_end[BASE], cursor[READ_POSITION]
        status, offset, count, is_in_side = deliver_run(
            t.log, position - base, t.member_log[COMMIT_POSITION] - base, position, t.columns, rows, t.side
        )
        if count > 0:
            payloads = t.side if is_in_side else t.log
            session_ids = t.columns[SESSION_IDS * rows : SESSION_IDS * rows + count]
            number_messages(t.numbers, session_ids, t.columns[NUMBERS * rows : NUMBERS * rows + count])
            if w[at.SERVICE_FUNCTION] == at.ECHO:
                served = _echo(t, payloads, count)
            else:
                served = _serve(t, payloads, count)
            if served > 0:
                w[at.SERVICE_TIME] = t.columns[TIMESTAMPS * rows + served - 1]
                advance(cursor, t.columns[EXTRA * rows + served - 1])
            take_back_messages(t.numbers, session_ids[served:])
            if served < count or w[at.UNKEPT] > 0:
                w[at.REASON] |= at.SERVICES
                break
            advance(cursor, base + offset)
        if status == DONE:
            end_chunk(cursor, base + offset, True, t.member_log[COMMIT_POSITION])
        elif status != OUT_FULL or count == 0:
            w[at.REASON] |= at.SERVICES
            break
    t.counters[t.services[w[at.SERVICE_ID] * SERVICE_WORDS + POSITION_COUNTER]] = cursor[TAKEN_POSITION]


@routine
def _echo(t, payloads, count):  # type: ignore[no-untyped-def]
    """Answer each message with itself; returns how many are served: none where one of them is too long."""
    w, rows = t.words, t.words[at.SERVICE_ROWS]
    if w[at.IS_SERVING]:
        for row in range(count):
            if not fits_egress(t, t.columns[LENGTHS * rows + row]):
                return 0
    if w[at.HAS_SUPERVISED]:
        session_ids = t.columns[SESSION_IDS * rows : SESSION_IDS * rows + count]
        number_answers(t.numbers, session_ids, w[at.SERVICE_ID], t.answer_ids[:count])
        kept = keep_answers(t, t.columns, t.answer_ids[:count], payloads, count)
        take_back_answers(t.numbers, session_ids[kept:], t.answer_ids[kept:count])
        count = kept
    if w[at.IS_SERVING] and count > 0:
        send_egress(t, w[at.SERVICE_LEADERSHIP_TERM_ID], t.columns, payloads, count)
    return count


@routine
def _serve(t, payloads, count):  # type: ignore[no-untyped-def]
    """Give the messages to the service's function; returns how many are served, before one for Python."""
    w, call = t.words, t.service_call
    set_columns(call, t.columns, w[at.SERVICE_ROWS])
    served, rows = 0, t.answers.size // COLUMNS
    while served < count:
        served = call_rows(w[at.SERVICE_FUNCTION], call, payloads, served, count)
        answered = call[ANSWERED]
        if w[at.HAS_SUPERVISED] and answered > 0:
            session_ids = t.answers[SESSION_IDS * rows : SESSION_IDS * rows + answered]
            number_answers(t.numbers, session_ids, w[at.SERVICE_ID], t.answer_ids[:answered])
            kept = keep_answers(t, t.answers, t.answer_ids[:answered], t.answer_bytes, answered)
            w[at.UNKEPT] = answered if kept < answered else 0
        if w[at.IS_SERVING] and answered > 0:
            send_egress(t, w[at.SERVICE_LEADERSHIP_TERM_ID], t.answers, t.answer_bytes, answered)
        if call[STATUS] != TAKEN or w[at.UNKEPT] > 0:
            break
    return served
