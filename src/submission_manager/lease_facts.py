"""Sinks for fencehold's facts about the lease: they filter them for the log and remember lease errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from fencehold import FactSink
from fencehold.service import redact
from submission_manager.own_words import CODED, HINTS

LASTING = (*HINTS, "too_many_connections")
FAILED_EVERY_S = 60.0


class FewerLines:
    """A sink that leaves out or marks facts that are no news, so that other lines of the log stay visible.

    It leaves out a second `leader_lost` of one term: a lease that was lost already is reported again if it cannot be
    released. It marks as repeats, which the log leaves out, all renewals of a term but the first (a leader that stops
    renewing is reported in any case), and failed tries to acquire with the same error, except one a minute (there are
    two a second).
    """

    def __init__(self, facts: FactSink, now_s: Callable[[], float] = time.monotonic) -> None:
        self._facts, self._now_s = facts, now_s
        self._terms: dict[str, tuple[Any, Any]] = {}  # by fact: the newest term it was about
        self._failed: tuple[str, float] | None = None  # the code of the error, and when it was passed on

    def fact(self, event: str, **fields: Any) -> None:
        if event == "leader_lost" and self._is_known(event, fields):
            return
        is_repeat = (event == "leader_renewed" and self._is_known(event, fields)) or (
            event == "leader_acquire_failed" and self._has_failed(fields)
        )
        self._facts.fact(event, **fields, **({"is_repeat": True} if is_repeat else {}))

    def _is_known(self, event: str, fields: Mapping[str, Any]) -> bool:
        before = self._terms.get(event)
        self._terms[event] = fields.get("lease_name"), fields.get("lease_epoch")
        return before == self._terms[event]

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
    """A sink that remembers the error that keeps this instance from acquiring the lease, until it has the lease.

    It remembers a missing table, a missing right, or a lack of connections. Safe to use from any thread.
    """

    def __init__(self) -> None:
        self.newest: str | None = None

    def fact(self, event: str, **fields: Any) -> None:
        if event in ("leader_acquired", "leader_renewed"):
            self.newest = None
        elif event == "leader_acquire_failed":
            self.newest = lacking(fields.get("sql_error"))


def lacking(error: object) -> str | None:
    """Return the code and message of `error` if waiting alone does not fix it; else None."""
    coded = CODED.match(error) if isinstance(error, str) else None
    return redact(str(error)) if coded is not None and coded[1] in LASTING else None
