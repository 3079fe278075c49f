"""Counts requests and request units by verb, for logs, counters and the benchmark. No decision depends on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock

from fencehold.ports.fact_table import StoreFacts
from fencehold.ports.facts import FactSink

CHARGE_HEADER = "x-ms-request-charge"


@dataclass(frozen=True, slots=True)
class Charge:
    requests: int = 0
    units: float = 0.0


@dataclass
class Charges:
    """Counts from every thread, and reports each request as a fact."""

    facts: FactSink | None = None
    _by_verb: dict[str, Charge] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock, repr=False)

    def add(self, verb: str, headers: Mapping[str, str] | None) -> None:
        units = units_of(headers)
        with self._lock:
            so_far = self._by_verb.get(verb, Charge())
            self._by_verb[verb] = Charge(so_far.requests + 1, so_far.units + units)
        if self.facts is not None:
            StoreFacts(self.facts).request_charged(verb=verb, request_units=units)

    def by_verb(self) -> dict[str, Charge]:
        with self._lock:
            return dict(self._by_verb)

    @property
    def total(self) -> Charge:
        charges = self.by_verb().values()
        return Charge(sum(c.requests for c in charges), sum(c.units for c in charges))


def units_of(headers: Mapping[str, str] | None) -> float:
    try:
        return float((headers or {}).get(CHARGE_HEADER, 0.0))
    except ValueError:
        return 0.0
