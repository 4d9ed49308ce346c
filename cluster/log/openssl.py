"""The OpenSSL that Python's own ``ssl`` uses, and its sessions, for compiled code to call.

Both are missing where Python is linked with OpenSSL statically, or is another Python than CPython.
"""

import _ssl
import ctypes
import ssl
from typing import Any

# Finds what the module was linked to; of one within Python itself there is no such list.
LIBRARY: Any = ctypes.CDLL(_ssl.__file__) if hasattr(_ssl, "__file__") else None
_SESSION_WORD, _CONTEXT_WORD = 3, 4  # of the object that CPython wraps around a session


def session_address(session: ssl.SSLObject) -> int:
    """Where its ``SSL`` is, as long as the object lives; 0 where that cannot be had."""
    # CPython has no name for it. It lies beside the address of the context, which shows the place.
    words = (ctypes.c_int64 * (_CONTEXT_WORD + 1)).from_address(id(session._sslobj))  # type: ignore[attr-defined]
    is_known = hasattr(LIBRARY, "SSL_read") and words[_CONTEXT_WORD] == id(session.context)
    return words[_SESSION_WORD] if is_known else 0
