"""What a running member takes from its configuration when that is read again: the ``reloadable`` keys.

All of it or nothing: what is wrong anywhere changes no key. What was changed stands in ``node.log``, and what
waits for a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from cluster.errors import ConfigurationError
from cluster.node.config import NodeConfig
from cluster.node.config_keys import RELOADABLE
from cluster.node.config_types import key_of, value_text
from cluster.node.node_log import NodeLog


def reload(
    running: NodeConfig, read: Callable[[], NodeConfig], parts: Iterable[Any], log: NodeLog
) -> NodeConfig:
    """Returns what the member goes by from now on. ``parts`` have keys as attributes, each its own."""
    try:
        found = read()
        config = running.reloaded(found)
    except ConfigurationError as error:
        log.asked("the configuration stays as it was", is_refused=True, why=str(error))
        return running
    for part in parts:
        for name in RELOADABLE:
            if hasattr(part, name):
                setattr(part, name, getattr(config, name))
    log.configure(config.log_level, config.node_log_bytes)
    log.asked(
        "the configuration was read again",
        changed=_differences(running, config),
        needs_restart=_differences(config, found),
    )
    return config


def _differences(before: NodeConfig, after: NodeConfig) -> dict[str, str]:
    return {
        key_of(name): f"{value_text(name, old)} -> {value_text(name, new)}"
        for name in NodeConfig.model_fields
        if (old := getattr(before, name)) != (new := getattr(after, name))
    }
