"""What the verbs cost: requests and request units, by verb. For logs, counters and the benchmark; decides nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from threading import Lock

LOGGER = logging.getLogger("fencehold.cosmos")
CHARGE_HEADER = "x-ms-request-charge"

Heard = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Charge:
    requests: int = 0
    units: float = 0.0


@dataclass
class Charges:
    """Counts from every thread; `on_charge(verb, units)` hears of each request, and whatever it raises is dropped."""

    on_charge: Heard | None = None
    _by_verb: dict[str, Charge] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock, repr=False)

    def add(self, verb: str, headers: Mapping[str, str] | None) -> None:
        units = units_of(headers)
        with self._lock:
            so_far = self._by_verb.get(verb, Charge())
            self._by_verb[verb] = replace(so_far, requests=so_far.requests + 1, units=so_far.units + units)
        LOGGER.debug("request_charge verb=%s request_units=%s", verb, units)
        if self.on_charge is not None:
            try:
                self.on_charge(verb, units)
            except Exception:  # a broken listener must not cost a lease
                LOGGER.exception("a listener to request charges failed")

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
