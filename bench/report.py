"""What a run found: one line per promise, as a table or as JSON."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Finding:
    """`limit` is None for a number that is printed for comparison only.

    `cell` (row, column) puts such a number into a table of its own, where one system stands beside another.
    """

    promise: str
    measured: float
    unit: str = ""
    limit: float | None = None
    at_least: bool = False
    detail: dict[str, Any] = field(default_factory=dict)
    cell: tuple[str, str] | None = None

    @property
    def verdict(self) -> str:
        if self.limit is None:
            return ""
        kept = self.measured >= self.limit if self.at_least else self.measured <= self.limit
        return "ok" if kept else "MISS"

    def row(self) -> tuple[str, str, str, str]:
        limit = "" if self.limit is None else f"{'>=' if self.at_least else '<='} {shown(self.limit, self.unit)}"
        return self.promise, shown(self.measured, self.unit), limit, self.verdict

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "verdict": self.verdict or None}


def shown(value: float, unit: str) -> str:
    text = f"{value:.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.3g}"
    return f"{text} {unit}".strip()


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all do not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def table(findings: Sequence[Finding], conditions: Mapping[str, str], notes: Sequence[str] = ()) -> str:
    promises = aligned(
        [("promise", "measured", "limit", ""), *(finding.row() for finding in findings if not finding.cell)]
    )
    where = ", ".join(f"{name} {value}" for name, value in conditions.items())
    blocks = [promises, beside_each_other(findings), list(notes), [where]]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def beside_each_other(findings: Sequence[Finding]) -> list[str]:
    """One line per system, one column per number."""
    cells = {finding.cell: finding for finding in findings if finding.cell}
    systems, columns = (list(dict.fromkeys(cell[place] for cell in cells)) for place in (0, 1))
    if not cells:
        return []
    rows = [
        (system, *(shown(cells[system, c].measured, "") if (system, c) in cells else "-" for c in columns))
        for system in systems
    ]
    return aligned([("system", *columns), *rows])


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [lines[0], "-" * max(map(len, lines)), *lines[1:]]


def as_json(findings: Sequence[Finding], conditions: Mapping[str, str], notes: Sequence[str] = ()) -> str:
    found = [finding.as_json() for finding in findings]
    return json.dumps({"conditions": conditions, "findings": found, "notes": list(notes)}, indent=2)


class Progress:
    """One line on standard error, rewritten on a terminal; standard output is for the result."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()

    def __call__(self, text: str) -> None:
        if self._live:
            sys.stderr.write(f"\r\x1b[K{text}")
        else:
            sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def done(self) -> None:
        if self._live:
            sys.stderr.write("\r\x1b[K")
