"""A line in a member's audit.log of what somebody on its host had done to it, and who that was."""

import os
import pwd
import sys
from contextlib import suppress

from cluster.errors import StorageError
from cluster.security.audit import AuditLog

NO_LOGIN = 2**32 - 1


def note_on_host(member: str | os.PathLike[str], what: str, outcome: str = "done") -> None:
    """Write it, where a member has begun an audit.log; that rotates it, so nothing else here does."""
    path = os.path.join(member, "audit.log")
    if not os.path.exists(path):
        return
    try:
        audit = AuditLog(path, bytes_max=sys.maxsize)
    except StorageError as error:
        print(f"{error}: {what} is not noted there", file=sys.stderr)
        return
    audit.administered("this host", who_asks().encode(), what, outcome)
    audit.close()


def who_asks() -> str:
    """The user of this process, and who logged in as another one (``sudo``), where the system knows."""
    user_id = login_id = os.getuid()
    with suppress(OSError, ValueError), open("/proc/self/loginuid") as file:
        login_id = int(file.read())
    name = _name(user_id)
    return name if login_id in (user_id, NO_LOGIN) else f"{_name(login_id)} as {name}"


def _name(user_id: int) -> str:
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return f"uid {user_id}"
