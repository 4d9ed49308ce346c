"""Settings that a client takes from the environment where its caller gives none.

CLUSTER_ENDPOINTS                    the members
CLUSTER_TOKEN_FILE                   credentials: the token in this file
CLUSTER_USER, CLUSTER_PASSWORD_FILE  credentials: a user, and the password in this file
CLUSTER_CLIENT_NAME                  client_name
CLUSTER_CLIENT_MESSAGE_TIMEOUT_S     message_timeout_s
CLUSTER_CLIENT_NEW_LEADER_TIMEOUT_S  new_leader_timeout_s, none: as the cluster announces
CLUSTER_CLIENT_KEEP_ALIVE_INTERVAL_S keep_alive_interval_s, none: the application sends them
CLUSTER_CLIENT_WINDOW_BYTES          window_bytes
CLUSTER_CLIENT_AERON_DIR             aeron_dir
CLUSTER_TLS_CA, _CERTIFICATE, _KEY   tls: paths of PEM files
"""

import os
from collections.abc import Callable, Mapping
from typing import Any, cast

from cluster.client.context import ClientContext, ClientSettings
from cluster.errors import ConfigurationError
from cluster.transport.credentials import credentials_in
from cluster.transport.endpoint import CLIENT_VARIABLE_PREFIX, ENDPOINTS_VARIABLE, Endpoint
from cluster.transport.tls import tls_in


def _seconds_or_none(text: str) -> float | None:
    return None if text.lower() == "none" else float(text)


# How the text of each setting is read, and what is expected.
_READ: dict[str, tuple[Callable[[str], Any], str]] = {
    "client_name": (str, "a name"),
    "message_timeout_s": (float, "seconds"),
    "new_leader_timeout_s": (_seconds_or_none, "seconds or none"),
    "keep_alive_interval_s": (_seconds_or_none, "seconds or none"),
    "window_bytes": (int, "a number of bytes"),
    "aeron_dir": (str, "a folder"),
}
# Each variable with the setting that it stands for.
VARIABLES = {CLIENT_VARIABLE_PREFIX + name.removeprefix("client_").upper(): name for name in _READ}


def context_of(
    endpoints: str | Mapping[int, str | Endpoint] | None, egress_listener: object, settings: ClientSettings
) -> ClientContext:
    """What the caller gives, and for the rest the environment. Raises TypeError, ConfigurationError."""
    for name in settings.keys() - ClientSettings.__annotations__.keys():
        from difflib import get_close_matches  # which nobody else needs

        meant = get_close_matches(name, ["endpoints", "egress_listener", *ClientSettings.__annotations__], 1)
        hint = f"; did you mean {meant[0]}?" if meant else ""
        raise TypeError(f"connect() has no setting {name!r}{hint}")
    if endpoints is None:
        endpoints = os.environ.get(ENDPOINTS_VARIABLE, "")
        if not endpoints.strip():
            raise ConfigurationError(f"endpoints: none given, and {ENDPOINTS_VARIABLE} is not set")
    return ClientContext(endpoints, egress_listener, **(settings_in(os.environ) | settings))


def settings_in(environment: Mapping[str, str]) -> ClientSettings:
    """What the variables say. Raises ConfigurationError for a value or a name that means nothing."""
    found: dict[str, Any] = {}
    if credentials := credentials_in(environment):
        found["credentials"] = credentials
    if (tls := tls_in(environment)) is not None:
        found["tls"] = tls
    for name in sorted(environment):
        if not name.startswith(CLIENT_VARIABLE_PREFIX):
            continue
        if name not in VARIABLES:
            raise ConfigurationError(
                f"environment variable {name}: no such setting; there are {', '.join(VARIABLES)}"
            )
        setting = VARIABLES[name]
        read, expected = _READ[setting]
        try:
            found[setting] = read(environment[name])
        except ValueError:
            raise ConfigurationError(
                f"environment variable {name} is {environment[name]!r}, expected {expected}"
            ) from None
    return cast(ClientSettings, found)
