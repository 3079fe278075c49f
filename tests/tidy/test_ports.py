"""Ports stay narrow: a backend is written, and a caller is read, one small protocol at a time."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.tree import ROOT, parsed

VERBS_MAX = 6


def protocols(src: Path) -> Iterator[tuple[str, ast.ClassDef]]:
    for path, tree in parsed(src):
        for one in ast.walk(tree):
            if isinstance(one, ast.ClassDef) and any(base_name(base) == "Protocol" for base in one.bases):
                yield path.name, one


def base_name(base: ast.expr) -> str:
    """`Protocol`, also of `Protocol[T]` and `typing.Protocol`."""
    return ast.unparse(base).partition("[")[0].rpartition(".")[2]


def verbs(port: ast.ClassDef) -> list[str]:
    """The methods that this protocol itself declares: what a call does or asks.

    A read-only property is no verb: it names a part, as `backend.leases` does, or tells what never changes. Nor is what
    a protocol has from the protocols it is made of: each of them is counted, and can be asked for, by itself.
    """
    methods = [one for one in port.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [one.name for one in methods if not any(ast.unparse(d) == "property" for d in one.decorator_list)]


def wide_ports(src: Path) -> list[str]:
    return [
        f"{file}: {port.name} has {len(verbs(port))} verbs"
        for file, port in protocols(src)
        if len(verbs(port)) > VERBS_MAX
    ]


def test_no_port_has_more_than_six_verbs():
    assert wide_ports(ROOT / "src" / "fencehold" / "ports") == []


def test_the_ports_are_found_at_all():
    names = {port.name for _, port in protocols(ROOT / "src" / "fencehold" / "ports")}
    assert {"Backend", "LeasePort", "EventPort", "ItemPort", "LockSession", "Mechanism", "OwnTables"} <= names


def test_a_wide_port_is_found(tmp_path):
    seven = "\n".join(f"    async def verb_{number}(self) -> None: ..." for number in range(VERBS_MAX + 1))
    part = "    @property\n    def part(self) -> int: ..."
    (tmp_path / "wide.py").write_text(f"class Wide(Protocol[T]):\n{seven}\n{part}\n")
    (tmp_path / "narrow.py").write_text(f"class Narrow(Wide, typing.Protocol):\n    def verb(self): ...\n{part}\n")
    assert wide_ports(tmp_path) == ["wide.py: Wide has 7 verbs"]
