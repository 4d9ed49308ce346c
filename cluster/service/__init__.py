"""The service container: runs a ClusteredService over the committed log of its member.

Does: deliver log entries in order up to commit-pos, keep the client sessions as the log has them,
hand the service's answers, timers and messages to the consensus module, acknowledge each step.
Never: read a clock, touch a socket or a file (snapshots are an archive's), decide what is committed, append
to the log.

    clustered_service.py   what a user writes; message_batch.py, and echo.py, which is built in
    cluster.py             what a service calls, with client_session.py, buffer_claim.py, idle_strategy.py
    outbox.py              what it sends, on its way to channel.py; session_egress.py, batch_answers.py
    service_state.py       where it is in the log; open_sessions.py
    agent.py               the duty cycle; bounded_log_adapter.py, callbacks.py, compiled_callback.py,
                           container_snapshot.py
    channel.py             what passes between the container and the consensus module
    replay.py              the agent over a part of a log, beside any member; service_loader.py

Read ``clustered_service.py`` first, then ``agent.py``. Services hold what ``cluster.py`` names, and nothing
of the container.
"""
