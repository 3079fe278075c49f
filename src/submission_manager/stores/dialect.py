"""The differences between the databases; the service's own rules are the same on all of them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fencehold.model.errors import FenceholdError
from submission_manager.stores.statements import StoreStatements


@dataclass(frozen=True)
class Dialect:
    statements: StoreStatements
    instant: Callable[[Any], dt.datetime]  # converts a column's value to a time
    stamp: Callable[[dt.datetime], Any]  # converts a time to a column's value
    driver_error: type[Exception]
    data_errors: tuple[type[Exception], ...]  # a bad value, not a failed database: raised unchanged, end no term
    fault: Callable[[Any], FenceholdError]  # converts a driver's error to one of ours

    def instant_or_none(self, value: Any) -> dt.datetime | None:
        return None if value is None else self.instant(value)

    def stamp_or_none(self, value: dt.datetime | None) -> Any:
        return None if value is None else self.stamp(value)
