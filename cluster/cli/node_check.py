"""``cluster node --check``: effective values, where each is from, and whether a member can start."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.cli.tables import columns_of
from cluster.errors import ClusterError
from cluster.node import config_text
from cluster.node.config_keys import KEYS, RELOADABLE
from cluster.node.config_types import key_of, value_text

if TYPE_CHECKING:
    from cluster.node.config import NodeConfig

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
    from cluster.service.service_loader import load_service

    found = []
    try:
        check_exposure(config)
    except ClusterError as error:
        found.append(str(error))
    for name in config.services:
        try:
            load_service(name)
        except ClusterError as error:
            found.append(str(error))
    tls = config.tls_files
    files = {"authenticator_file": config.authenticator_file}
    if tls is not None:
        files |= {"tls_ca": tls.ca, "tls_certificate": tls.certificate, "tls_key": tls.key}
    if config.authorisation and ":" not in config.authorisation:
        files["authorisation"] = config.authorisation
    for key, path in files.items():
        if path and not os.access(path, os.R_OK):
            found.append(f"{key} = {path}: cannot be read here")
    return found
