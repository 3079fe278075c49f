"""Imports the handlers named by `module:attribute`; its errors name what was searched, and where."""

from __future__ import annotations

import difflib
import importlib
import os
import shlex
import sys
import traceback
from types import ModuleType
from typing import Any

from fencehold.model.errors import ConfigurationError
from fencehold.model.names import quoted

USUAL = "handlers"
SHAPE = "Write MODULE:ATTRIBUTE, for example app.events:handlers for `handlers` in app/events.py."


def load(spec: str) -> Any:
    """Import and return the handlers, with the current directory on the path.

    Raises ConfigurationError if the name is wrong or there is no such module or attribute. If the import of the module
    itself fails, the error names its file and line.
    """
    module_name, _, attribute = spec.partition(":")
    words = [*module_name.split("."), *attribute.split(".")]
    if not all(word.isidentifier() for word in words):
        hint = _meant(spec) or SHAPE
        raise ConfigurationError(f"{quoted(spec)} names no handlers.", hint=hint, code="bad_handler_spec")
    found: Any = _module(module_name, attribute)
    where = f"module {module_name!r} ({getattr(found, '__file__', None) or 'built in'})"
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise _no_attribute(found, name, where)
        found, where = getattr(found, name), f"{where}, {name!r}"
    return found


def _meant(spec: str) -> str:
    """Return a hint what to type, if a file, a path, or a dot instead of the colon was given; else an empty text."""
    place, colon, attribute = spec.partition(":")
    folder, path = "", place.removesuffix(".py")
    if os.sep in place:
        path = os.path.relpath(path)
        if path.startswith(os.pardir):  # no module of a folder elsewhere is found from here
            folder, path = os.path.split(os.path.abspath(path))
    elif not colon and not os.path.exists(place.replace(".", os.sep) + ".py"):
        dotted, _, last = path.rpartition(".")
        path, attribute = (dotted, last) if dotted and path == place else (path, attribute)
    module = path.replace(os.sep, ".")
    if not all(word.isidentifier() for word in [*module.split("."), *(attribute or USUAL).split(".")]):
        return ""
    name = f"{module}:{attribute or USUAL}"
    what = (
        f"Go to its folder: cd {shlex.quote(folder)} && fencehold worker {name}" if folder else f"Did you mean {name}?"
    )
    return what if attribute else f"{what} (for `{USUAL}` in {module.replace('.', '/')}.py)"


def _module(name: str, attribute: str) -> ModuleType:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # If `app` of `app.events` is missing, the given name is wrong; if another name is, the module's own import is.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _broken(name, error) from error
        meant = _meant(f"{name}:{attribute}") if name.endswith(".py") else ""
        raise ConfigurationError(
            f"There is no module {name!r}: neither {_as_path(here, error.name)}.py nor a package of that name, "
            f"nor anything installed for {sys.executable}.",
            hint=meant or "Run it from the folder that holds the module, or set PYTHONPATH.",
            code="no_such_module",
        ) from None
    except (Exception, SystemExit) as error:
        raise _broken(name, error) from error


def _as_path(folder: str, module_name: str) -> str:
    return os.path.join(folder, *module_name.split("."))


def _broken(name: str, error: BaseException) -> ConfigurationError:
    """Return the error for a module whose import failed. It names file and line; it leaves out the traceback."""
    if os.environ.get("FENCEHOLD_DEBUG"):
        traceback.print_exception(error)
    if isinstance(error, SyntaxError):
        what, place = error.msg, f"{error.filename}, line {error.lineno}"
    else:
        frames = traceback.extract_tb(error.__traceback__)
        what, place = str(error), f"{frames[-1].filename}, line {frames[-1].lineno}"
    return ConfigurationError(
        f"Module {name!r} was found, but importing it failed: {type(error).__name__}: {what} ({place}).",
        hint="Mend the module; FENCEHOLD_DEBUG=1 shows the whole traceback.",
        code="module_failed",
    )


def _no_attribute(owner: Any, name: str, where: str) -> ConfigurationError:
    public = sorted(known for known in vars(owner) if not known.startswith("_")) if hasattr(owner, "__dict__") else []
    close = difflib.get_close_matches(name, public, n=1)
    hint = f"Did you mean {close[0]!r}?" if close else f"It has: {', '.join(public[:10])}." if public else SHAPE
    return ConfigurationError(f"There is no {name!r} in {where}.", hint=hint, code="no_such_attribute")
