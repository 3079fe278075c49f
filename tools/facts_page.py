"""Writes docs/facts.md: every fact of the library, from the table in src/fencehold/ports/fact_table.py.

usage: python tools/facts_page.py
"""

from __future__ import annotations

import inspect
import logging
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

from fencehold.ports import fact_table  # noqa: E402
from fencehold.ports.facts import LEVELS, Facts  # noqa: E402

HEAD = """# Facts

Everything that happens is reported once, as a *fact*: a name and fields. The log writes it as a line,
[metrics](metrics.md) count it, and a sink of your own gets it: an object with `fact(event: str, **fields)`, given as
`fencehold.connect(url, facts=sink)`; `fencehold.FanOut` joins several.

A fact always has the same fields; a field that does not apply is None. The level is that of its line in the log;
some facts are logged at another level by what they say: a dead letter is an error, a repeat of the same fact is DEBUG.
No fact has the contents of an event or a document.

This page is written by `make facts` from `src/fencehold/ports/fact_table.py`.
"""
ABOUT = {
    "LeaseFacts": ("lease_name", "holder_id", "lease_epoch", "expires_at"),
    "LockFacts": ("lease_name", "holder_id", "lease_epoch", "expires_at"),
    "OutageFacts": fact_table.WHO_WAITS,
    "OutboxFacts": ("outbox",),
    "WorkerFacts": ("outbox", "worker_id"),
    "EventFacts": ("outbox", "worker_id", "id", "tracking_id", "event_type"),
    "ItemFacts": ("kind", "id", "holder_id", "token", "expires_at"),
    "ItemKindFacts": ("kind",),
    "ProcessorFacts": ("kind", "state"),
}


def kinds() -> list[type[Facts]]:
    found = [one for one in vars(fact_table).values() if inspect.isclass(one) and issubclass(one, Facts)]
    return [one for one in found if one.__module__ == fact_table.__name__]


def fields_of(kind: type[Facts], name: str) -> list[str]:
    own = [one for one in inspect.signature(vars(kind)[name]).parameters if one != "self"]
    return list(dict.fromkeys([*ABOUT.get(kind.__name__, ()), *own]))


def page() -> str:
    parts = [HEAD]
    for kind in kinds():
        title = (inspect.getdoc(kind) or "").rstrip(".")
        parts.append(f"\n## {title}\n\n| fact | level | when | fields |\n| --- | --- | --- | --- |\n")
        for name, method in vars(kind).items():
            if name in LEVELS:
                fields = ", ".join(f"`{field}`" for field in fields_of(kind, name))
                level, when = logging.getLevelName(LEVELS[name]), " ".join((inspect.getdoc(method) or "").split())
                parts.append(f"| `{name}` | {level} | {when} | {fields} |\n")
    return "".join(parts)


if __name__ == "__main__":
    (ROOT / "docs" / "facts.md").write_text(page(), encoding="utf-8")
