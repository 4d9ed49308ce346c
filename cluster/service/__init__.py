"""The service container: runs a ClusteredService over the committed log of its member.

Does: deliver log entries in order up to commit-pos, keep the client sessions as the log tells them,
hand the service's answers, timers and messages to the consensus module, acknowledge each step.
Never: read a clock, touch a socket or a file, decide what is committed, append to the log.

Read first: ``clustered_service.py`` (what a user writes), then ``agent.py`` (the duty cycle),
``bounded_log_adapter.py`` (log bytes into callbacks), ``channel.py`` (what passes to and from the
consensus module), ``cluster.py`` and ``client_session.py`` (what a service calls), ``echo.py``.
"""
