"""What a running member or backup takes from its configuration when that is read again: ``reloadable`` keys.

All of it or nothing: what is wrong anywhere changes no key. What was changed stands in ``node.log``, or
``backup.log``, and what waits for a restart.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from cluster.errors import ConfigurationError
from cluster.node.config_types import key_of, reloadable_of, value_text
from cluster.node.node_log import NodeLog

if TYPE_CHECKING:
    from cluster.node.backup_config import BackupConfig
    from cluster.node.config import NodeConfig

Config = TypeVar("Config", "NodeConfig", "BackupConfig")


def reload(running: Config, read: Callable[[], Config], parts: Iterable[Any], log: NodeLog) -> Config:
    """Returns what it goes by from now on. ``parts`` have keys as attributes, each its own."""
    try:
        found = read()
        config = running.reloaded(found)
    except ConfigurationError as error:
        log.asked("the configuration stays as it was", is_refused=True, why=str(error))
        return running
    for part in parts:
        for name in reloadable_of(type(running)):
            if hasattr(part, name):
                setattr(part, name, getattr(config, name))
    log.configure(config.log_level, config.node_log_bytes)
    log.asked(
        "the configuration was read again",
        changed=_differences(running, config),
        needs_restart=_differences(config, found),
    )
    return config


def _differences(before: Config, after: Config) -> dict[str, str]:
    return {
        key_of(name): f"{value_text(name, old)} -> {value_text(name, new)}"
        for name in type(before).model_fields
        if (old := getattr(before, name)) != (new := getattr(after, name))
    }
