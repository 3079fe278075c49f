"""The table of facts: each fact always has the same fields, and the metrics and the tests use its name."""

import inspect
from typing import Any

import pytest

from fencehold.ports.facts import LEVELS
from fencehold.telemetry.metrics import FEEDS
from tests.fencehold.ports.facts_contract import CONTRACT
from tools.facts_page import ABOUT, fields_of, kinds

FACTS = [(kind, name) for kind in kinds() for name in vars(kind) if name in LEVELS]


class Told:
    def __init__(self) -> None:
        self.facts: list[tuple[str, dict[str, Any]]] = []

    def fact(self, event: str, **fields: Any) -> None:
        self.facts.append((event, fields))


@pytest.mark.parametrize(("kind", "name"), FACTS, ids=lambda one: getattr(one, "__name__", one))
def test_a_fact_has_the_same_fields_whether_or_not_all_are_given(kind: Any, name: str) -> None:
    told = Told()
    about: dict[str, Any] = {} if kind.__name__ == "OutageFacts" else dict.fromkeys(ABOUT.get(kind.__name__, ()), "x")
    facts = kind(told, **about)
    parameters = list(inspect.signature(vars(kind)[name]).parameters.values())[1:]
    required = {one.name: "given" for one in parameters if one.default is one.empty}
    getattr(facts, name)(**required)
    getattr(facts, name)(**{one.name: "given" for one in parameters})
    (first, few), (second, all_of_them) = told.facts
    assert first == second == name
    assert few.keys() == all_of_them.keys() == set(fields_of(kind, name))


def test_no_fact_is_declared_twice() -> None:
    names = [name for _, name in FACTS]
    assert sorted(names) == sorted(set(names))


def test_the_facts_of_the_tests_and_of_the_metrics_are_in_the_table() -> None:
    fields = {name: set(fields_of(kind, name)) for kind, name in FACTS}
    assert CONTRACT.keys() <= fields.keys()
    assert {feed.fact for _, feed in FEEDS} <= fields.keys()
    unknown = {name: set(told) - fields[name] for name, told in CONTRACT.items() if not set(told) <= fields[name]}
    assert unknown == {}


def test_no_fact_has_the_contents_of_an_event_or_a_document() -> None:
    private = {"payload", "payload_json", "metadata", "metadata_json", "document", "document_json"}
    assert [name for kind, name in FACTS if private & set(fields_of(kind, name))] == []
