"""Services by the names that a configuration has for them."""

import difflib
import importlib
import inspect
import os
import sys
from collections.abc import Callable
from types import ModuleType

from cluster.errors import AgentTermination, ConfigurationError
from cluster.service.callbacks import RAISED, raised_at
from cluster.service.clustered_service import ClusteredService
from cluster.service.compiled_callback import NAME as COMPILED

CALLBACKS = [
    name for name, value in vars(ClusteredService).items() if inspect.isfunction(value) or name == COMPILED
]
# How like a callback's name a method's must be to be taken for a slip of the pen.
LIKENESS = 0.95


def load_service(name: str) -> ClusteredService:
    """``echo`` or ``module:ClassName``, also of the working directory. Raises ConfigurationError."""
    if name == "echo":
        name = "cluster.service.echo:EchoService"
    module_name, separator, class_name = name.partition(":")
    if not separator or not module_name or not class_name:
        raise ConfigurationError(f'service "{name}": expected "echo" or "module:ClassName"')
    try:
        module = import_here(module_name)
    except RAISED as error:
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            raise ConfigurationError(
                f'service "{name}": no module {module_name}, neither installed nor in {os.getcwd()}'
            ) from None
        raise _failed(name, f"importing {module_name}", error) from error
    if not hasattr(module, class_name):
        services = [
            each
            for each, value in vars(module).items()
            if isinstance(value, type)
            and issubclass(value, ClusteredService)
            and value is not ClusteredService
        ]
        has = f", but {', '.join(services)}" if services else ""
        raise ConfigurationError(f'service "{name}": {module_name} has no {class_name}{has}')
    service_class = getattr(module, class_name)
    if wrong := _wrong_class(service_class):
        raise ConfigurationError(f'service "{name}": {wrong}')
    try:
        service: ClusteredService = service_class()
    except AgentTermination:
        raise
    except RAISED as error:
        raise _failed(name, f"{class_name}()", error) from error
    for method_name in dir(service):
        if wrong := _wrong_method(service, method_name):
            raise ConfigurationError(f'service "{name}": {class_name}.{method_name} {wrong}')
    return service


def import_here(module_name: str) -> ModuleType:
    """A user's module, found from the working directory too. Raises what importing it raises."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    return importlib.import_module(module_name)


def _failed(name: str, what: str, error: BaseException) -> ConfigurationError:
    return ConfigurationError(
        f'service "{name}": {what} failed: {type(error).__name__}: {error} ({raised_at(error)})'
    )


def _wrong_class(service_class: object) -> str:
    """Why something is no class of services that can be made; empty for one that can."""
    if not isinstance(service_class, type):
        return f"is a {type(service_class).__name__}, not a class derived from cluster.ClusteredService"
    if not issubclass(service_class, ClusteredService):
        return f"class {service_class.__name__} is not derived from cluster.ClusteredService"
    wrong = _wrong_call(service_class)
    return f"{service_class.__name__}() is called without arguments: {wrong}" if wrong else ""


def _wrong_method(service: ClusteredService, name: str) -> str:
    """Why a callback cannot be called as it will be, or a method never is though it looks like one."""
    if name not in CALLBACKS:
        meant = difflib.get_close_matches(name, CALLBACKS, 1, LIKENESS)
        return f"is never called; did you mean {meant[0]}?" if meant else ""
    method = getattr(service, name)
    if not callable(method):
        return "is no method"
    if inspect.iscoroutinefunction(method):
        return "is async; callbacks are plain methods"
    arguments = inspect.signature(getattr(ClusteredService(), name)).parameters
    wrong = _wrong_call(method, *arguments)
    return f"is called with ({', '.join(arguments)}): {wrong}" if wrong else ""


def _wrong_call(function: Callable[..., object], *arguments: str) -> str:
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        return str(error)
    except ValueError:
        pass  # written in C: there is no signature to look at
    return ""
