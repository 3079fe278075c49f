"""What the page for authors of backends counts and names is what the ports, the suite and the example have."""

import inspect
import re
from pathlib import Path

from fencehold.ports import backend, checkup, events, fence, items, leases, schema, wakeup
from fencehold.testing import conformance
from tests.conformance import test_json_file as example_tests

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "adding-a-backend.md").read_text("utf-8")
PORTS = {
    port.__name__: port
    for port in (leases.LeasePort, schema.SchemaPort, fence.FencePort, wakeup.WakeupPort, checkup.CheckupPort,
                 events.EventPort, events.EventAdmin, events.EventHints, items.ItemPort)
}  # fmt: skip
COUNTED = re.compile(r"\| `(\w+)` \| (\d+): ([^|]+?) \|")
FOR_ANY_LEASES = ("Rules", "Verbs", "Silence", "Walk", "Names", "Times")


def verbs(port: type) -> list[str]:
    return [name for name, member in vars(port).items() if inspect.isfunction(member) and not name.startswith("_")]


def test_every_port_is_listed_with_its_verbs_and_their_number():
    told = {port: (int(number), re.findall(r"`(\w+)`", named)) for port, number, named in COUNTED.findall(PAGE)}
    assert told == {name: (len(verbs(port)), verbs(port)) for name, port in PORTS.items()}


def test_every_part_of_a_backend_has_a_row():
    parts = {name for name in vars(backend.Backend) if not name.startswith("_")} - {"open", "close"}
    table = PAGE.partition("## What a backend has")[2].partition("The outbox and the items")[0]
    assert set(re.findall(r"^\| `(\w+)", table, re.MULTILINE)) == parts


def test_every_class_of_the_suite_is_in_a_table():
    rows = [line for line in PAGE.splitlines() if line.count(" | ") == 2]
    named = {name for row in rows for name in re.findall(r"`([A-Z]\w+)`", row.split(" | ")[1])}
    assert set(conformance.__all__) <= named
    assert named - set(conformance.__all__) <= set(PORTS)


def test_every_test_that_needs_a_fence_is_left_out_by_the_example_and_on_the_page():
    without = PAGE.partition("Without fences, as in the example:")[2].partition("These tests")[0]
    for name in FOR_ANY_LEASES:
        suite = getattr(conformance, name)
        bodies = {test: inspect.unwrap(body) for test, body in vars(suite).items() if inspect.isfunction(body)}
        fenced = {test for test, body in bodies.items() if ".fences." in inspect.getsource(body)}
        left_out = {test for test in bodies if getattr(getattr(example_tests, f"Test{name}"), test) is None}
        part = without.partition(f"conformance.{name})")[2].partition("class ")[0]
        assert fenced == left_out == set(re.findall(r"(test_\w+) = None", part)), name
