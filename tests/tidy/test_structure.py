"""Folders that can be looked over, constructors that can be read, and no import that leads back to where it began."""

import ast
from collections import Counter
from pathlib import Path

from tests.tidy.test_imports import imports, module_name
from tests.tidy.tree import ROOT, parsed

MODULES_MAX = 22
PARAMETERS_MAX = 8
#: Its parameters are the contract of specification 002, and mssqlleaderlock has the same.
FIXED = {"LeaderLock"}


def crowded_folders(src: Path) -> list[str]:
    counts = Counter(path.parent for path, _ in parsed(src) if path.name != "__init__.py")
    return [f"{folder.relative_to(src)}: {count} modules" for folder, count in counts.items() if count > MODULES_MAX]


def wide_constructors(src: Path) -> list[str]:
    return [
        f"{path.relative_to(src)}:{function.lineno}: {owner.name} takes {count} parameters"
        for path, tree in parsed(src)
        for owner in ast.walk(tree)
        if isinstance(owner, ast.ClassDef) and owner.name not in FIXED
        for function in owner.body
        if isinstance(function, ast.FunctionDef) and function.name == "__init__"
        if (count := len(function.args.args) + len(function.args.kwonlyargs) - 1) > PARAMETERS_MAX
    ]


def import_cycles(src: Path) -> list[str]:
    """Imports inside functions and for type checkers only count too: they hide a cycle, and do not mend it."""
    modules = {module_name(src, path): (path, tree) for path, tree in parsed(src)}
    packages = {module_name(src, path) for path, _ in parsed(src) if path.name == "__init__.py"}
    targets = {
        name: {target for _, found in imports(src, path, tree) if (target := known(found, modules)) and target != name}
        for name, (path, tree) in modules.items()
    }
    # Whoever imports a.b.c imports a and a.b as well; that is no cycle of their own making.
    edges = {
        name: {t for t in found if not (t in packages and name.startswith(f"{t}."))} for name, found in targets.items()
    }
    return sorted(" -> ".join(cycle) for cycle in cycles(edges))


def known(target: str, modules: dict[str, tuple[Path, ast.Module]]) -> str:
    """The module a dotted name is, or is in; empty for what is not ours."""
    if target in modules:
        return target
    owner = target.rpartition(".")[0]
    return owner if owner in modules else ""


def cycles(edges: dict[str, set[str]]) -> set[tuple[str, ...]]:
    found: set[tuple[str, ...]] = set()
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> None:
        if name in path:
            cycle = path[path.index(name) :]
            first = cycle.index(min(cycle))
            found.add((*cycle[first:], *cycle[:first]))
            return
        if name in done:
            return
        for target in sorted(edges.get(name, ())):
            visit(target, [*path, name])
        done.add(name)

    for name in sorted(edges):
        visit(name, [])
    return found


def test_no_folder_has_more_modules_than_one_can_look_over():
    assert crowded_folders(ROOT / "src") == []


def test_no_constructor_takes_more_than_eight_parameters():
    assert wide_constructors(ROOT / "src") == []


def test_no_import_leads_back():
    assert import_cycles(ROOT / "src") == []


def test_a_crowded_folder_is_found(tmp_path):
    for number in range(MODULES_MAX + 1):
        (tmp_path / f"m{number}.py").write_text("")
    assert crowded_folders(tmp_path) == [f".: {MODULES_MAX + 1} modules"]


def test_a_wide_constructor_is_found(tmp_path):
    (tmp_path / "a.py").write_text("class A:\n def __init__(self, a, b, c, d, e, f, g, *, h, i): ...\n")
    (tmp_path / "b.py").write_text("class B:\n def __init__(self, a, b, c, d, e, f, g, *, h): ...\n")
    assert wide_constructors(tmp_path) == ["a.py:2: A takes 9 parameters"]


def test_a_cycle_is_found_also_where_it_is_hidden(tmp_path):
    package = tmp_path / "fencehold"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("from fencehold.b import x\n")
    (package / "b.py").write_text("def f():\n    from fencehold import c\n")
    (package / "c.py").write_text("if TYPE_CHECKING:\n    from fencehold.a import y\n")
    assert import_cycles(tmp_path) == ["fencehold.a -> fencehold.b -> fencehold.c"]
