"""A configuration as text: loaded and written. ``conf/node.toml`` documents every key.

The environment variable of a key is ``CLUSTER_`` with its name in capitals. It wins over the file, an option
of the command line over both.
"""

import difflib
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from cluster.archive.files import OsFiles, make_directories, replace
from cluster.errors import ConfigurationError, StorageErrors
from cluster.node.config import NodeConfig
from cluster.node.config_keys import KEYS
from cluster.node.config_types import key_of
from cluster.protocol.mark_file import CLUSTER_MARK_FILE_NAME
from cluster.transport import credentials
from cluster.transport.endpoint import CLIENT_VARIABLE_PREFIX, ENDPOINTS_VARIABLE
from cluster.transport.tls import TLS_VARIABLES

Config = TypeVar("Config", bound=BaseModel)

ENVIRONMENT_PREFIX = "CLUSTER_"
BACKUP_PREFIX = "CLUSTER_BACKUP_"
# No keys: clients and backups read what is called so, or begins so.
CLIENT_VARIABLES = (
    ENDPOINTS_VARIABLE,
    "CLUSTER_DIR",  # where commands look; the directory of a member is an option, or in its file
    CLIENT_VARIABLE_PREFIX,
    BACKUP_PREFIX,
    *credentials.VARIABLES,
    *TLS_VARIABLES.values(),
)


def load(
    path: str | os.PathLike[str] | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> NodeConfig:
    """A member's configuration, as ``read_keys``. The clients' variables are no keys of it."""
    return load_with_places(path, overrides=overrides, environment=environment)[0]


def load_with_places(
    path: str | os.PathLike[str] | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> tuple[NodeConfig, dict[str, str]]:
    """The same with the place of each key that is given."""
    environment = os.environ if environment is None else environment
    own = {name: value for name, value in environment.items() if not name.startswith(CLIENT_VARIABLES)}
    return read_keys(NodeConfig, path, ENVIRONMENT_PREFIX, overrides, own)


def read_keys(
    model: type[Config],
    path: str | os.PathLike[str] | None,
    prefix: str,
    overrides: Mapping[str, Any] | None,
    environment: Mapping[str, str],
) -> tuple[Config, dict[str, str]]:
    """The configuration of a file (none: all defaults), under the environment, under ``overrides``.

    The variable of a key is ``prefix`` with its name in capitals; an override of None is none. Relative
    directories of a file are relative to the working directory. Returns, too, the place of each key that is
    given: the file, a variable, an option. Raises ConfigurationError that names the place, the key, its value
    and what was expected.
    """
    values: dict[str, Any] = {} if path is None else values_in(path)
    places = dict.fromkeys(values, str(path))
    for key in map(key_of, model.model_fields):
        variable = prefix + key.upper()
        if variable in environment:
            values[key] = environment[variable]
            places[key] = f"environment variable {variable}"
    for key, value in (overrides or {}).items():
        if value is not None:
            values[key] = value
            places[key] = "option"
    try:
        return model.model_validate(values), places
    except ValidationError as error:
        keys = [key_of(name) for name in model.model_fields]
        raise ConfigurationError(
            "; ".join(_explain(details, places, path, keys) for details in error.errors())
        ) from None


def values_in(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a file has, as it stands there. Raises ConfigurationError."""
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: no such file") from None
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigurationError(f"{path}: not TOML: {error}") from None
    except RecursionError:
        raise ConfigurationError(f"{path}: nested too deep, expected keys with plain values") from None


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """A line for each variable that begins like ours and that nothing reads: probably a slip of the pen."""
    lines = []
    for name in sorted(environment):
        if name.startswith(CLIENT_VARIABLES):
            continue
        key = name.removeprefix(ENVIRONMENT_PREFIX).lower()
        if name.startswith(ENVIRONMENT_PREFIX) and key not in KEYS:
            lines.append(f"unknown environment variable {name}{near(key, KEYS)}")
    return lines


def noted_if_moved(path: str | os.PathLike[str], config: NodeConfig) -> str | None:
    """One line for the file of a member's directory that names another one, as after a move or a copy."""
    folder = Path(path).resolve().parent
    if not (folder / "cluster" / CLUSTER_MARK_FILE_NAME).exists() or config.path.resolve() == folder:
        return None
    return f"{path}: dir is {config.path}, which is used, and not {folder}; give --dir {folder} for that one"


def near(key: str, keys: Sequence[str]) -> str:
    """What to append to a complaint about a key that is none: those that are spelled nearly so."""
    names = difflib.get_close_matches(key, keys, n=3, cutoff=0.8)
    return f"; did you mean {' or '.join(names)}?" if names else ""


def _explain(details: Any, places: Mapping[str, str], path: object, keys: Sequence[str]) -> str:
    key = key_of(str(details["loc"][0])) if details["loc"] else ""
    place = places.get(key, str(path) if path is not None else "")
    where = f"{place}: " if place else ""
    if details["type"] == "extra_forbidden":
        return f'{where}unknown key "{key}"{near(key, keys)}'
    message = details["msg"][:1].lower() + details["msg"][1:]
    if not key:
        return where + message
    return f"{where}{key} = {to_toml(details['input'])}: {message.replace('input should be', 'expected')}"


def to_toml(value: Any) -> str:
    """A value as TOML writes it; long lists take a line for each item."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list) and len(value) > 0 and any(len(str(item)) > 20 for item in value):
        return "[\n" + "".join(f"    {to_toml(item)},\n" for item in value) + "]"
    if isinstance(value, list):
        return "[" + ", ".join(to_toml(item) for item in value) + "]"
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


def write(path: str | os.PathLike[str], values: Mapping[str, Any]) -> None:
    """Write the given keys as a file that ``load`` takes, whole or not at all. Raises StorageError."""
    path = Path(path)
    text = "".join(f"{key} = {to_toml(value)}\n" for key, value in values.items())
    with StorageErrors(path, "cannot be written"):
        if path.exists() and path.read_text() == text:
            return
        make_directories(path.parent)
        replace(OsFiles(), str(path), text.encode())
