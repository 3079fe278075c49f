"""A pytest plugin that prints, after a run, which rule was proved on which store, and by how many tests.

    python -m fencehold.testing.conformance test_my_store.py
    pytest -p fencehold.testing.conformance.matrix test_my_store.py             # the same

A test of the suite proves the rules that its oracle applied while the store agreed, and those it names by `@proves`.
Any other test proves those it names: by `@proves`, or as `test_rule_020_001_...`, on the store whose URL it is given.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest

from fencehold.model.election import places
from fencehold.model.election import rules as leases
from fencehold.model.items import rules as items
from fencehold.model.outbox import rules as events
from fencehold.testing.conformance.classes import Suite
from fencehold.testing.harness import Can, Harness

#: The rules by table, and what a store must be able to do so that they apply to it.
TABLES: dict[str, tuple[Can, list[str]]] = {
    "leases": (Can.LEASES, [rule.id for rule in leases.RULES]),
    "fences": (Can.FENCES, ["live.fence.is_holder"]),
    "places": (Can.PLACES, [rule.id for rule in places.RULES]),
    "outbox": (Can.OUTBOX, [rule.id for rule in events.RULES]),
    "items": (Can.ITEMS, [rule.id for rule in items.RULES]),
}
NEEDED = {f"{title} {rule}": can for title, (can, rules) in TABLES.items() for rule in rules}
STORES = {
    "memory": "memory", "sqlite": "SQLite", "postgresql": "PostgreSQL", "mssql": "SQL Server", "cosmos": "Cosmos DB",
}  # fmt: skip
RULES_OF_TEST = "fencehold_rules"
LEGEND = "a number: proved by so many tests; not run; n/a: does not apply to this store"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rule-tests", action="store_true", help="in the matrix of rules also the tests that proved each")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Matrix())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    try:
        yield
    finally:
        given: Mapping[str, Any] = getattr(item, "funcargs", {})
        rules, store = rules_of(item, given), store_of(given)
        if rules and store:
            item.user_properties.append((RULES_OF_TEST, [store, *sorted(rules)]))


def rules_of(item: pytest.Item, given: Mapping[str, Any]) -> set[str]:
    """Return the rules that the test's oracle applied, and the rules that the test or its class names."""
    numbered = re.match(r"test_rule_(\d{3})_(\d{3})_", item.name)
    rules = {f"RULE-{numbered[1]}-{numbered[2]}"} if numbered else set()
    for part in (getattr(item, "function", None), getattr(item, "cls", None)):
        rules |= {*getattr(part, "proves", ())}
    return rules | (given["harness"].applied if isinstance(given.get("harness"), Harness) else set())


def store_of(given: Mapping[str, Any]) -> str:
    """Return the store that the test ran on, by its harness or by a URL that the test was given; empty: not known."""
    if isinstance(harness := given.get("harness"), Harness):
        return harness.traits.store
    schemes = (value.partition("://")[0] for value in given.values() if isinstance(value, str))
    return next((STORES[scheme] for scheme in schemes if scheme in STORES), "")


class Matrix:
    """The pytest plugin: notes which tests were collected and which rules each test proved, and prints the tables."""

    def __init__(self) -> None:
        self._can: dict[str, set[Can]] = {}  # by store; everything, if only a URL names the store
        self._proved: dict[tuple[str, str], set[str]] = defaultdict(set)  # names of tests, by rule and store
        self._failed: set[tuple[str, str]] = set()
        self._not_collected: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)  # by store and reason

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        suite: type[Suite] | None = getattr(getattr(item, "cls", None), "suite", None)
        if suite is not None:
            self._can[suite.traits.store] = {*suite.traits.can}
            for name, why in suite.not_collected.items():
                self._not_collected[suite.traits.store, why][name] = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, found in report.user_properties if report.when == "call" else ():
            if name == RULES_OF_TEST and isinstance(found, list):
                self._add(found[0], found[1:], report)

    def _add(self, store: str, rules: Iterable[str], report: pytest.TestReport) -> None:
        self._can.setdefault(store, {*Can})
        for rule in rules:
            if report.failed:
                self._failed.add((rule, store))
            elif report.passed:
                self._proved[rule, store].add(report.nodeid.partition("[")[0])

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        if self._can:
            terminalreporter.section("rules of the conformance suite")
            for line in self.lines(with_tests=config.getoption("--rule-tests")):
                terminalreporter.write_line(line)

    def lines(self, *, with_tests: bool) -> Iterator[str]:
        yield LEGEND
        width = max(map(len, NEEDED))
        for title, rules in self._tables().items():
            yield f"\n{title:{width}}{'  '.join(self._can)}"
            for rule in rules:
                cells = (f"{self._cell(rule, store):>{len(store)}}" for store in self._can)
                yield f"{rule.removeprefix(f'{title} '):{width}}{'  '.join(cells)}"
                tests = {test for store in self._can for test in self._proved.get((rule, store), ())}
                yield from (f"    {test}" for test in sorted(tests) if with_tests)
        yield ""
        for (store, why), names in self._not_collected.items():
            yield f"{store}: {why}: {', '.join(names)}"

    def _tables(self) -> dict[str, list[str]]:
        """Return the rules to show, by table; the rules of specification 001 only if a test that was run names them."""
        tables = {title: [f"{title} {rule}" for rule in rules] for title, (_, rules) in TABLES.items()}
        named = {rule for rule, _ in [*self._proved, *self._failed]} - {*NEEDED}
        return tables | ({"specification 001": sorted(named)} if named else {})

    def _cell(self, rule: str, store: str) -> str:
        if NEEDED.get(rule, Can.OUTBOX) not in self._can[store]:
            return "n/a"
        if (rule, store) in self._failed:
            return "FAILED"
        return str(len(self._proved.get((rule, store), ())) or "not run")
