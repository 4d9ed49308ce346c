"""Who may come in, as configured: files of principals and rights, and what is checked against them.

``loading.py`` makes a member's ``Security`` of its configuration; read it first. The hooks are those of
``cluster/consensus/authentication.py``. Nothing here writes a secret anywhere.
"""
