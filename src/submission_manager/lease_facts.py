"""What fencehold tells of the lease, as the service passes it on and remembers it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from fencehold.model.errors import redact
from fencehold.ports.facts import FactSink
from submission_manager.own_words import CODED, HINTS

LASTING = (*HINTS, "too_many_connections")
FAILED_EVERY_S = 60.0


class OneLoss:
    """A sink that passes on one `leader_lost` of a term: a lease that could not be given back was lost already."""

    def __init__(self, facts: FactSink) -> None:
        self._facts = facts
        self._lost: tuple[Any, Any] | None = None

    def fact(self, event: str, **fields: Any) -> None:
        if event == "leader_lost":
            term = fields.get("lease_name"), fields.get("lease_epoch")
            if term == self._lost:
                return
            self._lost = term
        self._facts.fact(event, **fields)


class FewerLines:
    """A sink that passes on as repeats, which the log leaves out, what would drown everything else.

    Of the renewals of a term all but the first: a leader that no longer renews is told of anyway. Of tries to acquire
    that fail by the same error all but one a minute: there are two a second.
    """

    def __init__(self, facts: FactSink, now_s: Callable[[], float] = time.monotonic) -> None:
        self._facts, self._now_s = facts, now_s
        self._renewed: tuple[Any, Any] | None = None
        self._failed: tuple[str, float] | None = None  # the code of the error, and when it was passed on

    def fact(self, event: str, **fields: Any) -> None:
        is_repeat = (event == "leader_renewed" and self._is_renewed(fields)) or (
            event == "leader_acquire_failed" and self._has_failed(fields)
        )
        self._facts.fact(event, **fields, **({"is_repeat": True} if is_repeat else {}))

    def _is_renewed(self, fields: Mapping[str, Any]) -> bool:
        before, self._renewed = self._renewed, (fields.get("lease_name"), fields.get("lease_epoch"))
        return before == self._renewed

    def _has_failed(self, fields: Mapping[str, Any]) -> bool:
        error = fields.get("sql_error")
        if error is None:
            self._failed = None
            return False
        code, now_s = str(error).partition("]")[0], self._now_s()
        if self._failed is not None and self._failed[0] == code and now_s - self._failed[1] < FAILED_EVERY_S:
            return True
        self._failed = code, now_s
        return False


class LeaseTrouble:
    """A sink that remembers which table or right, or lack of connections, keeps this instance from the lease.

    Until it has it. Any thread.
    """

    def __init__(self) -> None:
        self.newest: str | None = None

    def fact(self, event: str, **fields: Any) -> None:
        if event in ("leader_acquired", "leader_renewed"):
            self.newest = None
        elif event == "leader_acquire_failed":
            self.newest = lacking(fields.get("sql_error"))


def lacking(error: object) -> str | None:
    """Its code and its message, if it is of a kind that waiting alone does not mend."""
    coded = CODED.match(error) if isinstance(error, str) else None
    return redact(str(error)) if coded is not None and coded[1] in LASTING else None
