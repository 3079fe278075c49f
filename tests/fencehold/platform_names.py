"""Which names of the standard library exist on Linux only, as the type stubs that mypy brings along tell it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import mypy

STUBS = Path(mypy.__file__).parent / "typeshed" / "stdlib"
MODULES = ("os", "time", "signal", "socket", "select")
#: Modules that Windows has not; macOS has them all.
UNIX_MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty")


def missing_on(platform: str) -> dict[str, list[str]]:
    """Names that these modules have on Linux, and not on this platform."""
    return {name: sorted(_names(name, "linux") - _names(name, platform)) for name in MODULES}


def _names(module: str, platform: str) -> set[str]:
    stub = STUBS / f"{module}.pyi"
    path = stub if stub.exists() else STUBS / module / "__init__.pyi"
    return set(_defined(ast.parse(path.read_text("utf-8")).body, platform))


def _defined(body: Sequence[ast.stmt], platform: str) -> Iterator[str]:
    for node in body:
        match node:
            case ast.If():
                yield from _defined(node.body if _holds(node.test, platform) else node.orelse, platform)
            case ast.FunctionDef() | ast.ClassDef() | ast.AsyncFunctionDef():
                yield node.name
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Assign():
                yield from (target.id for target in node.targets if isinstance(target, ast.Name))
            case ast.ImportFrom():
                yield from (alias.asname or alias.name for alias in node.names)


def _holds(test: ast.expr, platform: str) -> bool:
    told = SimpleNamespace(platform=platform, version_info=sys.version_info)
    return bool(eval(compile(ast.Expression(test), "stub", "eval"), {"sys": told}))
