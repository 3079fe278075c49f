"""Write docs/api.txt from the code: every public name with its signature, so that a change of the contract is seen.

usage: public_api.py [--check]        --check writes nothing and exits 1, with the difference, if docs/api.txt is old

Public is what the `__all__` of the modules below lists, and what those classes have without a leading underscore.
"""

from __future__ import annotations

import difflib
import enum
import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "api.txt"
MODULES = (
    "fencehold", "fencehold.sync", "fencehold.own_tables", "fencehold.service", "fencehold.command",
    "fencehold.telemetry.prometheus", "pgleaderlock", "mssqlleaderlock",
)  # fmt: skip
#: Their constructors are not public: the store makes them.
MADE_BY_THE_STORE = ("fencehold.runtime", "fencehold.sync", "fencehold.ports")
MADE_BY_USERS = ("Statement",)
#: Made by dataclasses and enums; they differ between versions of Python.
GIVEN_BY_PYTHON = ("mro", "name", "value")
HEAD = "# Every public name and its signature. Written by `make api`; a test fails while it is not current.\n"


def page() -> str:
    return HEAD + "\n".join(line for module in MODULES for line in ["", f"[{module}]", *of_module(module)]) + "\n"


def of_module(name: str) -> Iterator[str]:
    module = importlib.import_module(name)
    for public in sorted(module.__all__):
        yield from of_name(public, getattr(module, public))


def of_name(name: str, thing: Any) -> Iterator[str]:
    if inspect.isclass(thing) and thing.__module__.partition(".")[0] in ours():
        yield f"class {name}{bases(thing)}"
        if issubclass(thing, enum.Enum):
            yield f"    values: {', '.join(str(one.value) for one in thing)}"
        yield from (f"    {line}" for line in sorted(members(thing)))
    elif inspect.isfunction(thing):
        yield called(name, thing)
    elif isinstance(thing, int):
        yield f"{name} = {thing}"
    else:
        yield f"{name}: a name for types"


def bases(thing: type) -> str:
    public = [base.__name__ for base in thing.__bases__ if base is not object and not base.__name__.startswith("_")]
    return f"({', '.join(public)})" if public else ""


def members(thing: type) -> Iterator[str]:
    for name, member in inspect.getmembers_static(thing):
        is_own = any(name in vars(base) for base in thing.__mro__ if base.__module__.partition(".")[0] in ours())
        is_the_stores = thing.__module__.startswith(MADE_BY_THE_STORE) and thing.__name__ not in MADE_BY_USERS
        is_made_by_user = name == "__init__" and not is_the_stores
        if not is_own or (name.startswith("_") and not is_made_by_user) or name in GIVEN_BY_PYTHON:
            continue
        if isinstance(member, property):
            answer = inspect.signature(member.fget).return_annotation if member.fget else ""
            yield f"{name}: {annotation(answer)}"
        elif isinstance(member, classmethod | staticmethod):
            yield called(name, member.__func__)
        elif inspect.isfunction(member):
            yield called(name, member)
    for name, answer in getattr(thing, "__annotations__", {}).items():
        if not name.startswith("_"):
            yield f"{name}: {annotation(answer)}"


def ours() -> set[str]:
    return {module.partition(".")[0] for module in MODULES}


def called(name: str, function: Any) -> str:
    kind = "async " if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function) else ""
    signature = inspect.signature(function)
    answer = annotation(signature.return_annotation)
    return f"{kind}{name}({', '.join(parameters(signature))})" + (f" -> {answer}" if answer else "")


def parameters(signature: inspect.Signature) -> Iterator[str]:
    is_keyword = False
    for one in signature.parameters.values():
        if one.kind is one.KEYWORD_ONLY and not is_keyword:
            is_keyword = True
            yield "*"
        stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        is_keyword = is_keyword or stars == "*"
        kind = annotation(one.annotation)
        is_named = inspect.isroutine(one.default) or inspect.isclass(one.default)
        said = one.default.__name__ if is_named else repr(one.default)
        default = "" if one.default is one.empty else f" = {said}"
        yield f"{stars}{one.name}" + (f": {kind}" if kind else "") + default


def annotation(given: Any) -> str:
    if given is inspect.Signature.empty:
        return ""
    return given if isinstance(given, str) else str(getattr(given, "__name__", given))


def main(arguments: list[str]) -> int:
    text = page()
    if "--check" not in arguments:
        PAGE.write_text(text, encoding="utf-8")
        return 0
    there = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    if there == text:
        return 0
    lines = difflib.unified_diff(there.splitlines(), text.splitlines(), "docs/api.txt", "the code", lineterm="", n=1)
    print("docs/api.txt is not current; look at the difference, then run: make api", *lines, sep="\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
