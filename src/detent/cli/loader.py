"""Loads the application that APP names: `module:app` or `file.py:app`; `:app` is optional."""

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from detent.client.app import Detent
from detent.core.errors import DetentError, InvalidInput

DEFAULT_NAME = "app"


class AppFailed(DetentError, code="APP_FAILED"):
    """The application's module raised an exception while it was imported."""


def load_app(spec: str, url: str | None = None) -> Detent:
    """The Detent object that APP names, on the database of `url` if that is given.

    Raises an error that says which part of the name is wrong.
    """
    module_name, colon, name = spec.rpartition(":") if ":" in spec else (spec, "", "")
    if not module_name or (colon and not name):
        raise InvalidInput(f"APP {spec!r} is invalid; write module:app or file.py:app", code="APP_INVALID")
    is_file = module_name.endswith(".py") or "/" in module_name
    module = _from_file(Path(module_name)) if is_file else _from_module(module_name)
    app = _attribute(module, module_name, name)
    if not isinstance(app, Detent):
        message = f"{module_name}:{name or DEFAULT_NAME} is a {type(app).__name__}, not a Detent"
        raise InvalidInput(f"{message}; name the object created by `app = Detent(...)`", code="APP_INVALID")
    app.url = url or app.url
    return app


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise InvalidInput(f"file {path} does not exist; check the path to your application", code="APP_NOT_FOUND")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # so that the file can import modules beside it
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InvalidInput(f"{path} is not a Python file; its name must end in .py", code="APP_NOT_FOUND")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses, pickle and process pools look it up here
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise _failed(path.stem, error) from error
    return module


def _from_module(name: str) -> ModuleType:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            message = f"module {error.name!r} was not found; run from its folder, or name a file like ./{name}.py"
            raise InvalidInput(message, code="APP_NOT_FOUND") from None
        raise _failed(name, error) from error
    except Exception as error:
        raise _failed(name, error) from error


def _failed(name: str, error: Exception) -> AppFailed:
    """A one-line error that ends with the file and line where the exception was raised."""
    if isinstance(error, SyntaxError):
        location = f"{error.filename}:{error.lineno}"
    else:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<frozen")]
        location = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else name
    return AppFailed(f"{name} could not be loaded: {type(error).__name__}: {error} (at {location})")


def _attribute(module: ModuleType, module_name: str, name: str) -> object:
    """The named attribute; without a name `app`, or the only Detent of the module."""
    apps = {key: value for key, value in vars(module).items() if isinstance(value, Detent)}
    attribute = name or DEFAULT_NAME
    if hasattr(module, attribute):
        return getattr(module, attribute)
    if not name and len({id(value) for value in apps.values()}) == 1:
        return next(iter(apps.values()))
    hint = f"it has {', '.join(sorted(apps))}" if apps else "it has no Detent; create one with `app = Detent()`"
    raise InvalidInput(f"{module_name} has no {attribute!r}; {hint}", code="APP_NOT_FOUND")
