"""``cluster node --check``: effective values, where each is from, and whether a member can start."""

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from cluster.cli.tables import columns_of
from cluster.errors import ClusterError
from cluster.node import config_text
from cluster.node.config import NodeConfig
from cluster.node.config_keys import KEYS, RELOADABLE
from cluster.node.config_types import key_of, value_text

# Keys of files that a running member reads again when they change; the keys themselves take a restart.
READ_AGAIN = ("authenticator_file", "authorisation", "tls_certificate", "tls_key", "tls_ca")


def check(path: Path, overrides: dict[str, Any], *, as_json: bool) -> bool:
    """Print every key; False when a member would not start with them here. Raises ConfigurationError."""
    config, places = config_text.load_with_places(path, overrides=overrides)
    keys = [_described(key, config, places.get(key, "default")) for key in KEYS]
    problems = [*config_text.unknown_variables(os.environ), *_problems(config)]
    if as_json:
        print(json.dumps({"file": str(path), "keys": keys, "problems": problems}, indent=1))
        return not problems
    given = [key for key in keys if key["source"] != "default"]
    rows = [(key["key"], key["source"], key["takes"], key["text"]) for key in given]
    print(columns_of(("key", "from", "a change takes", "value"), rows))
    print(f"{len(keys) - len(rows)} other keys have their defaults (--json shows them)")
    for problem in problems:
        print(f"problem: {problem}")
    return not problems


def _described(key: str, config: NodeConfig, place: str) -> dict[str, Any]:
    names = {key_of(name): name for name in type(config).model_fields}
    value = getattr(config, names[key])
    takes = "SIGHUP" if names[key] in RELOADABLE else "a restart"
    if key in READ_AGAIN and value:
        takes = "a restart; the file's content none"
    return {
        "key": key,
        "value": value,
        "text": value_text(names[key], value),
        "source": place,
        "takes": takes,
    }


def _problems(config: NodeConfig) -> list[str]:
    """What is right as a configuration, and yet lets no member start on this host."""
    from cluster.node.exposure import check_exposure
    from cluster.node.machine import member_tls_of
    from cluster.security.loading import load_security
    from cluster.service.service_loader import load_service

    def ignore(*_: object) -> None:
        """Nobody is refused, and no file changes, while it is loaded."""

    found = []
    steps: list[Callable[[], object]] = [
        partial(check_exposure, config),
        *(partial(load_service, name) for name in config.services),
        partial(member_tls_of, config),
        partial(load_security, config, ignore, ignore),
    ]
    for step in steps:
        try:
            step()
        except ClusterError as error:
            found.append(str(error))
    folders = {"cluster_dir": config.cluster_path, "archive_dir": config.archive_path}
    folders["driver_dir"] = config.driver_path
    set_apart = {key: path for key, path in folders.items() if getattr(config, key)}
    for key, path in ({"dir": config.path} | set_apart).items():
        there = next(folder for folder in (path, *path.absolute().parents) if os.path.exists(folder))
        if not there.is_dir():
            found.append(f"{key} = {path}: {there} is no directory")
        elif not os.access(there, os.W_OK | os.X_OK):
            found.append(f"{key} = {path}: {there} cannot be written here")
    if (file := config.standby_token_file) and not os.access(file, os.R_OK):
        found.append(f"standby_token_file = {file}: cannot be read here")
    return found
