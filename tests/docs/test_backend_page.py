"""What the page for authors of backends counts and names is what the ports, the suite and the example have."""

import inspect
import re
from pathlib import Path

from fencehold.ports import backend, checkup, events, fence, items, leases, schema, wakeup
from fencehold.testing.conformance.classes import CLASSES
from fencehold.testing.harness import Can

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "adding-a-backend.md").read_text("utf-8")
PORTS = {
    port.__name__: port
    for port in (leases.LeasePort, schema.SchemaPort, fence.FencePort, wakeup.WakeupPort, checkup.CheckupPort,
                 events.EventPort, events.EventsInTx, events.EventAdmin,
                 items.ItemPort, items.ItemLeases, items.ItemAdmin)
}  # fmt: skip
COUNTED = re.compile(r"\| `(\w+)` \| (\d+): ([^|]+?) \|")
SUITE_TABLES = PAGE.partition("These are the classes")[2].partition("## 4.")[0]
PARTS = (Can.LEASES, Can.OUTBOX, Can.ITEMS)
ORDER = (*Can,)


def verbs(port: type) -> list[str]:
    return [name for name, member in vars(port).items() if inspect.isfunction(member) and not name.startswith("_")]


def test_every_port_is_listed_with_its_verbs_and_their_number():
    told = {port: (int(number), re.findall(r"`(\w+)`", named)) for port, number, named in COUNTED.findall(PAGE)}
    assert told == {name: (len(verbs(port)), verbs(port)) for name, port in PORTS.items()}


def test_every_part_of_a_backend_has_a_row():
    parts = {name for name in vars(backend.Backend) if not name.startswith("_")} - {"open", "close"}
    table = PAGE.partition("## What a backend has")[2].partition("The outbox and the items")[0]
    assert set(re.findall(r"^\| `(\w+)", table, re.MULTILINE)) == parts


def test_every_class_of_the_suite_is_in_a_table_with_what_it_needs():
    rows = re.findall(r"^\| ((?:`[A-Z]\w+`(?:, )?)+) \| ([^|]*) ?\| \S", SUITE_TABLES, re.MULTILINE)
    told = {name: needs.strip() for names, needs in rows for name in re.findall(r"`(\w+)`", names)}
    assert told == {tests.__name__: needed(tests) for tests in CLASSES}


def needed(tests: type) -> str:
    """What a class needs, as the page says it."""
    beside = [f"`{one.name}`" for one in ORDER if one in getattr(tests, "needs") and one not in PARTS]  # noqa: B009
    return ", ".join([*beside, *(f"no `{one.name}`" for one in getattr(tests, "unless", ()))])


def test_everything_that_a_store_can_lack_is_explained():
    table = PAGE.partition("| in `can` | if |")[2].partition("How the clock")[0]
    assert set(re.findall(r"`([A-Z_]{3,})`", table)) == {one.name for one in Can}
