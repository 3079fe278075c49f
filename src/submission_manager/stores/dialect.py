"""What differs between the databases where the service's own rules do not."""

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
    instant: Callable[[Any], dt.datetime]  # a time out of its column
    stamp: Callable[[dt.datetime], Any]  # and into one
    driver_error: type[Exception]
    data_errors: tuple[type[Exception], ...]  # of a value, not of the database: they leave as they are, and drop nobody
    fault: Callable[[Any], FenceholdError]  # a driver's error as one of ours

    def instant_or_none(self, value: Any) -> dt.datetime | None:
        return None if value is None else self.instant(value)

    def stamp_or_none(self, value: dt.datetime | None) -> Any:
        return None if value is None else self.stamp(value)
