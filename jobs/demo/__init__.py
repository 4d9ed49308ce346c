"""A year of real flights through the whole product: ``make demo``.

Three members on this machine, one session per airline that sends each flight when its departure has come
(the year takes about a minute), a service that sets a timer for each scheduled arrival, Spark following the
committed Log into Delta and writing delay statistics back as ingress; and counts from three sides that have
to agree. It uses what any user has: the command line, ``ClusterClient``, ``ClusteredService``, ``LogReader``,
``format("cluster")`` and the jobs.

Read first: :mod:`jobs.demo.story`, which has the run in order; then :mod:`jobs.demo.service`, the state
machine, and :mod:`jobs.demo.statistics`, what Spark computes.
"""
