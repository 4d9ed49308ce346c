"""The consensus core: how a leader is found, what is committed, and what a member keeps besides the log.

Pure: no I/O, no clock, no thread, no chance of its own. Time comes in with every call, messages come in
through ``on_*``, randomness is handed in, and what the outside must do goes out as ``actions``, in the order
to do them. Same calls in, same actions out. Imports nothing but ``cluster.protocol`` and ``cluster.log``.

Read ``election.py`` first: every state of an election and each way out of it. Beside it

    context.py           what is configured: time-outs, limits, who the members are
    cluster_member.py    what is known of each member, and the predicates over all of them
    leadership_terms.py  which term wrote which part of the log, and what that proves
    log_matching.py      whether a log is a prefix of a leader's
    actions.py           everything the core can ask for
    histories.py         whether two logs are of one history; identity.py: two members of one cluster
    promises.py          what a member has promised, and may have forgotten
    quorum.py            what a majority has proven, over words that compiled turns share
    leadership.py        the term that a member leads: who follows, what is sent
    leader.py, follower.py   both once the election is over: reports, commit, heartbeats, silence
    replica.py           all that the log determines: read, swept, undone, taken into a snapshot, loaded
    sessions.py          clients: from the connect request to the close; session_admission.py who may come in,
                         session_events.py what they hear
    lanes.py, consumers.py, kept_answers.py
                         what else is kept for clients
    timers.py            timers of the services
    service_messages.py  messages of the services to their own cluster
    module.py            state of the module, the uncommitted entries, and what a lost leadership undoes
    module_snapshot.py   the records of a snapshot, written and read
"""
