"""Services by the names that a configuration has for them."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from cluster.errors import AgentTermination, ConfigurationError


def load_service(name: str) -> Any:
    """A service by its configured name: ``echo``, or ``module:ClassName``, also of the working directory.

    Raises ConfigurationError that says what is missing.
    """
    if name == "echo":
        name = "cluster.service.echo:EchoService"
    module_name, separator, class_name = name.partition(":")
    if not separator or not module_name or not class_name:
        raise ConfigurationError(f'service "{name}": expected "echo" or "module:ClassName"')
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise ConfigurationError(f'service "{name}": {error}') from error
        raise ConfigurationError(
            f'service "{name}": no module {module_name}, neither installed nor in {os.getcwd()}'
        ) from None
    except Exception as error:
        raise ConfigurationError(
            f'service "{name}": importing {module_name} failed: {type(error).__name__}: {error}'
        ) from error
    try:
        return getattr(module, class_name)()
    except AttributeError:
        if not hasattr(module, class_name):
            raise ConfigurationError(f'service "{name}": {module_name} has no {class_name}') from None
        raise
    except AgentTermination:
        raise
    except Exception as error:
        raise ConfigurationError(
            f'service "{name}": {class_name}() failed: {type(error).__name__}: {error}'
        ) from error
