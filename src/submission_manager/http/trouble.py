"""Requests that the database failed: told now and then, and the newest remembered for whoever asks /readyz."""

from __future__ import annotations

import time

from fencehold.model.errors import FenceholdError, redact
from fencehold.ports.facts import FactSink
from submission_manager.rare_log import RareLog

TELL_EVERY_S = 30.0
FRESH_S = 60.0  # beyond it a failure says nothing of what the next client gets


class RequestTrouble:
    """At once, then every 30 s with how many: a database that is down fails every request."""

    def __init__(self, facts: FactSink) -> None:
        self._failed = RareLog(facts, "request_failed", "requests", TELL_EVERY_S)
        self._newest: tuple[float, str] | None = None  # of the submissions

    def failed(self, path: str, error: FenceholdError, *, is_submission: bool) -> None:
        words = f"[{error.code}] {redact(error.message)}"
        if is_submission:
            self._newest = time.monotonic(), words
        self._failed.add("", path=path, sql_error=words)

    def stored(self) -> None:
        """A submission was answered by the database."""
        self._newest = None

    def why_submissions_fail(self) -> str | None:
        """What the newest one failed of; None: it did not, or that was long ago."""
        newest = self._newest
        return newest[1] if newest is not None and time.monotonic() - newest[0] < FRESH_S else None

    def close(self) -> None:
        self._failed.close()
