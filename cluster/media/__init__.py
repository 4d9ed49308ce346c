"""A client of Aeron's media driver, in C or Java: subscriptions, publications, a remote archive.

    Aeron ── ClientConductor ── DriverProxy ── to-driver ring ──▶┐
      │            └── BroadcastReceiver ◀── to-clients buffer ──┤ cnc.dat ── media driver ── network
      │            └── ClientHeartbeat: a thread ── counter ────▶┘
      ├── Subscription ── Image ◀── log buffer
      └── Publication ── log buffer ▶

Read ``aeron.py`` first. The names are those of Aeron's Java client. Its files are another process's memory:
each length in them is checked before it is used, and kernels stay within the arrays that they are given.
What the driver does wrong, or says no to, is a MediaDriverError. Nothing here knows what a cluster is.
"""
