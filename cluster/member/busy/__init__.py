"""What is frequent in a member's turn, as one compiled function; read ``turn.py`` first.

It never decides what is rare: an election, a session that opens, a fault. It reaches the world by the table
of calls that it is handed (``cluster/log/calls.py``).
"""
