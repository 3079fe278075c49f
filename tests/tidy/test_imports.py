"""Imports go one way, and a driver is known only to its own backend."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.tree import ROOT, parsed

LOCKS = ("pgleaderlock", "mssqlleaderlock")
STORAGE = {"model", "ports", "backends", "runtime", "telemetry"}

#: The service's own rooms, each with those of the service below it. A module directly in the package is a room.
_SHARED = {"sm.model", "sm.ports", "sm.settings", "sm.rare_log"}
SERVICE: dict[str, set[str]] = {
    "sm.model": set(),
    "sm.ports": {"sm.model"},
    "sm.settings": {"sm.model"},
    "sm.own_words": set(),
    "sm.rare_log": set(),
    "sm.answers": set(),
    "sm.lease_facts": {"sm.own_words"},
    "sm.registry": {"sm.model"},
    "sm.metrics": {"sm.model"},
    "sm.stores": {"sm.model", "sm.ports", "sm.answers"},
    "sm.schedule": _SHARED,
    "sm.executor": _SHARED | {"sm.schedule", "sm.metrics", "sm.context"},
    "sm.context": {"sm.metrics"},
    "sm.fitness": {"sm.ports", "sm.own_words"},
    "sm.leadership": _SHARED | {"sm.schedule", "sm.executor", "sm.fitness", "sm.context", "sm.metrics"},
    "sm.gateway_client": _SHARED | {"sm.outgoing"},
    "sm.webhook": _SHARED | {"sm.outgoing"},
    "sm.outgoing": {"sm.model"},
    "sm.http": _SHARED | {"sm.registry", "sm.answers", "sm.metrics"},
    "sm.fake_gateway": {"sm.model", "sm.http"},
    "sm.instance": _SHARED
    | {"sm.registry", "sm.metrics", "sm.stores", "sm.schedule", "sm.executor", "sm.leadership", "sm.gateway_client"}
    | {"sm.webhook", "sm.outgoing", "sm.http", "sm.own_words", "sm.lease_facts", "sm.fitness", "sm.answers"}
    | {"sm.context"},
    "sm.cli": _SHARED
    | {"sm.registry", "sm.instance", "sm.fake_gateway", "sm.metrics", "sm.http", "sm.demo", "sm.stores", "command"}
    | {"sm.own_words"},
    "sm.demo": _SHARED | {"sm.registry", "sm.instance", "sm.fake_gateway", "sm.stores"},
}

#: All that the service may import of fencehold: what any other service may.
PUBLIC = ("fencehold", "fencehold.command", "fencehold.own_tables", "fencehold.service")

#: room -> the rooms it may import (besides itself). `connect` is every module at the top of fencehold.
ALLOWED: dict[str, set[str]] = {
    "model": set(),
    "ports": {"model"},
    "backends": {"model", "ports"},
    "runtime": {"model", "ports"},
    "telemetry": {"model", "ports"},
    "connect": STORAGE,
    "sync": STORAGE | {"connect"},
    "console": STORAGE | {"connect", "sync"},
    "cli": STORAGE | {"connect", "console", "testing", "verify"},
    "command": STORAGE | {"connect", "cli"},
    "verify": STORAGE | {"connect", "testing", *LOCKS},
    "testing": STORAGE | {"connect", *LOCKS} | set(SERVICE),
    **{room: STORAGE | {"connect"} for room in LOCKS},
    **{room: {"connect"} | below for room, below in SERVICE.items()},
}

#: the folder in backends/ that holds what the SQL databases share
SHARED = "sql"
OWN_SCHEMA = "submission_manager/stores/own_schema.py"

#: driver -> folders or files (below src) that may import it
DRIVERS: dict[str, tuple[str, ...]] = {
    "psycopg": ("fencehold/backends/postgres", "fencehold/testing", "fencehold/verify", "pgleaderlock", OWN_SCHEMA),
    "psycopg_pool": ("fencehold/backends/postgres", "fencehold/testing", "pgleaderlock"),
    "mssql_python": ("fencehold/backends/sqlserver", "fencehold/testing"),
    "azure": ("fencehold/backends/cosmos", "fencehold/testing"),
    "sqlite3": ("fencehold/backends/sqlite", "fencehold/testing", "fencehold/verify"),
    "prometheus_client": ("fencehold/telemetry/prometheus.py", "submission_manager/metrics.py"),
    "httpx": (
        "submission_manager/outgoing.py",
        "submission_manager/gateway_client.py",
        "submission_manager/webhook.py",
        "submission_manager/demo",
    ),
    "opentelemetry": ("fencehold/telemetry/traces.py",),
}


def wrong_directions(src: Path) -> list[str]:
    return [
        f"{path.relative_to(src)}:{line}: {room} may not import {target}"
        for path, tree in parsed(src)
        for room in [room_of(module_name(src, path), src)]
        if room is not None
        for line, target in imports(src, path, tree)
        if not may_import(module_name(src, path), target, src)
    ]


def may_import(importer: str, target: str, src: Path) -> bool:
    here, there = room_of(importer, src), room_of(target, src)
    if here is None or there is None:
        return True
    if here == there == "backends":
        return same_backend(importer, target, src)
    return here == there or there in ALLOWED.get(here, set())


def same_backend(importer: str, target: str, src: Path) -> bool:
    """Backends share the files directly in backends/ and those in backends/sql, which know no backend."""
    there = backend_of(target, src)
    return there in {None, backend_of(importer, src)}


def backend_of(module: str, src: Path) -> str | None:
    parts = module.split(".")
    is_backend = len(parts) > 2 and parts[2] != SHARED and (src / "fencehold" / "backends" / parts[2]).is_dir()
    return parts[2] if is_backend else None


def room_of(module: str, src: Path) -> str | None:
    """None for a module that is not ours."""
    parts = module.split(".")
    if parts[0] in LOCKS:
        return parts[0]
    if parts[0] == "submission_manager":
        return service_room(parts[1]) if len(parts) > 1 else "sm.model"
    if parts[0] != "fencehold":
        return None
    if parts[1:] == ["__main__"]:
        return "cli"
    if len(parts) > 1 and (parts[1] in ALLOWED or (src / "fencehold" / parts[1]).is_dir()):
        return parts[1]
    return "connect"


def service_room(module: str) -> str:
    """executor_writes belongs to executor, registry_checks to registry; an unknown name is a room that nobody knows."""
    found = [room for room in SERVICE if f"{module}_".startswith(f"{room.removeprefix('sm.')}_")]
    return max(found, key=len) if found else f"sm.{module}"


def foreign_drivers(src: Path) -> list[str]:
    return [
        f"{path.relative_to(src)}:{line}: {target} is imported outside its place"
        for path, tree in parsed(src)
        for line, target in imports(src, path, tree)
        for places in [DRIVERS.get(target.split(".")[0])]
        if places is not None and not any(path.is_relative_to(src / place) for place in places)
    ]


def private_names(src: Path) -> list[str]:
    """What the service uses of fencehold that no other service could: names that are in no `__all__`."""
    public = {module: exported(src, module) for module in PUBLIC}
    return [
        f"{path.relative_to(src)}:{line}: {name} is not public"
        for path, tree in parsed(src)
        if path.is_relative_to(src / "submission_manager")
        for line, name in used_of_fencehold(src, path, tree)
        if name not in PUBLIC and name.rpartition(".")[2] not in public.get(name.rpartition(".")[0], ())
    ]


def used_of_fencehold(src: Path, path: Path, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Modules and names of fencehold, whole: imported, or as attributes of the package."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found = [alias.name for alias in names]
            case ast.ImportFrom(names=names):
                found = [f"{absolute(src, path, node)}.{alias.name}" for alias in names]
            case ast.Attribute(value=ast.Name(id="fencehold"), attr=name):
                found = [f"fencehold.{name}"]
            case ast.Call(func=function, args=[ast.Constant(value=str(name)), *_]) if is_import_call(function):
                found = [name]
            case _:
                continue
        yield from ((node.lineno, name) for name in found if name.partition(".")[0] == "fencehold")


def exported(src: Path, module: str) -> set[str]:
    """What the module lists in `__all__`; the version is public too."""
    place = src.joinpath(*module.split("."))
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    lists = [
        ast.literal_eval(node.value)
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    return {"__version__", *(name for names in lists for name in names)}


def module_name(src: Path, path: Path) -> str:
    parts = list(path.relative_to(src).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(src: Path, path: Path, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every module a file imports, at any depth, by statement or by importlib with a name written out."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(names=names):
                base = absolute(src, path, node)
                for alias in names:
                    yield node.lineno, submodule(src, base, alias.name)
            case ast.Call(func=function, args=[ast.Constant(value=str(name)), *_]) if is_import_call(function):
                yield node.lineno, name


def is_import_call(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in {"import_module", "__import__"}


def absolute(src: Path, path: Path, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = list(path.relative_to(src).parent.parts)
    kept = package[: len(package) - node.level + 1]
    return ".".join([*kept, *([node.module] if node.module else [])])


def submodule(src: Path, base: str, name: str) -> str:
    """`from fencehold import model` names a room; `from fencehold import LeaseLost` a thing in the package itself."""
    place = src.joinpath(*base.split("."), name)
    return f"{base}.{name}" if place.is_dir() or place.with_suffix(".py").exists() else base


def test_imports_go_one_way():
    assert wrong_directions(ROOT / "src") == []


def test_drivers_stay_in_their_backends():
    assert foreign_drivers(ROOT / "src") == []


def test_the_service_uses_of_fencehold_what_any_other_service_could():
    assert private_names(ROOT / "src") == []


def plant(src: Path, **texts: str) -> None:
    for name, text in texts.items():
        path = src.joinpath(*name.split("__")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_wrong_direction_is_found(tmp_path):
    plant(
        tmp_path,
        fencehold__model__a="from fencehold.ports import x",
        fencehold__ports__a="def f():\n    from fencehold import connect",
        fencehold__runtime__a="from ..telemetry import log",
        fencehold__backends__sqlite__a="from fencehold.backends.memory import a",
        fencehold__backends__memory__a="import fencehold.runtime.a",
        fencehold__testing__a="import importlib\nimportlib.import_module('fencehold.cli')",
        fencehold__connect="from fencehold import console",
        fencehold__console__a="",
    )
    assert len(wrong_directions(tmp_path)) == 7


def test_a_wrong_direction_inside_the_service_is_found(tmp_path):
    plant(
        tmp_path,
        submission_manager__model__a="from submission_manager import ports",
        submission_manager__ports="from submission_manager.model import a",
        submission_manager__stores__sqlite__a="from submission_manager.executor_writes import x",
        submission_manager__executor_writes="from submission_manager.stores.sqlite import a",
        submission_manager__http__a="from submission_manager.instance import Instance",
        submission_manager__instance="from submission_manager.stores.sqlite import a",
        submission_manager__cli__a="from fencehold.cli import screen",
        submission_manager__cli__b="from fencehold.command import put",
        submission_manager__schedule="from submission_manager.cli import a",
    )
    assert len(wrong_directions(tmp_path)) == 6


def test_a_name_that_only_fencehold_itself_may_use_is_found_in_the_service(tmp_path):
    plant(
        tmp_path,
        fencehold__service="from fencehold.model.errors import redact, hidden\n__all__ = ['redact']",
        fencehold__model__errors="__all__ = ['redact']",
        submission_manager__right="import fencehold\nfrom fencehold import Term, service\nservice.redact\n"
        "from fencehold.service import redact\nfencehold.connect(fencehold.__version__)",
        submission_manager__a="from fencehold.model.errors import redact",
        submission_manager__b="def f():\n    import fencehold.model.errors",
        submission_manager__c="from fencehold.service import hidden",
        submission_manager__d="import fencehold\nfencehold.ports.clock.Clock()",
        submission_manager__e="from fencehold import Clock",
        submission_manager__f="import importlib\nimportlib.import_module('fencehold.model')",
    )
    package = "from fencehold.ports.clock import Clock\n__all__ = ['Term', 'connect']"
    (tmp_path / "fencehold" / "__init__.py").write_text(package)
    assert [line.split(":")[0] for line in private_names(tmp_path)] == [
        f"submission_manager/{name}.py" for name in "abcdef"
    ]


def test_right_directions_pass(tmp_path):
    plant(
        tmp_path,
        fencehold__model__a="import enum",
        fencehold__runtime__a="from fencehold.model import a\nfrom . import b",
        fencehold__backends__sqlite__a="from fencehold.backends.statements import load\nfrom . import b",
        fencehold__backends__statements="",
        fencehold__connect="from fencehold.backends.sqlite import a",
        fencehold__cli__a="import fencehold",
        pgleaderlock__a="from fencehold.runtime import a",
    )
    assert wrong_directions(tmp_path) == []


def test_a_driver_out_of_place_is_found(tmp_path):
    plant(
        tmp_path,
        fencehold__runtime__a="def f():\n    import psycopg.errors",
        fencehold__backends__postgres__a="import psycopg",
        fencehold__backends__memory__a="from sqlite3 import connect",
        pgleaderlock__a="from psycopg import sql",
        fencehold__testing__a="import sqlite3, psycopg",
        fencehold__telemetry__prometheus="import prometheus_client",
        fencehold__telemetry__traces="import prometheus_client\nfrom opentelemetry import trace",
    )
    assert [line.split(":")[0] for line in foreign_drivers(tmp_path)] == [
        "fencehold/backends/memory/a.py",
        "fencehold/runtime/a.py",
        "fencehold/telemetry/traces.py",
    ]
