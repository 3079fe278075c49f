"""Requests that failed because of the database: logs them at intervals, and remembers the newest for /readyz."""

from __future__ import annotations

import time

from fencehold import FactSink, FenceholdError
from fencehold.service import redact
from submission_manager.rare_log import RareLog

LOG_EVERY_S = 30.0
FRESH_S = 60.0  # an older failure does not show what the next client will get


class RequestTrouble:
    """Logs the first failure at once, then a count every 30 s: when a database is down, every request fails."""

    def __init__(self, facts: FactSink) -> None:
        self._failed = RareLog(facts, "request_failed", LOG_EVERY_S)
        self._newest: tuple[float, str] | None = None  # the newest failed submission: (time, error)

    def failed(self, path: str, error: FenceholdError, *, is_submission: bool) -> None:
        words = f"[{error.code}] {redact(error.message)}"
        if is_submission:
            self._newest = time.monotonic(), words
        self._failed.add("", {"requests": 1}, path=path, sql_error=words)

    def stored(self) -> None:
        """The database has answered a submission: forget the newest failure."""
        self._newest = None

    def why_submissions_fail(self) -> str | None:
        """The error of the newest submission; None if it did not fail, or failed more than FRESH_S ago."""
        newest = self._newest
        return newest[1] if newest is not None and time.monotonic() - newest[0] < FRESH_S else None

    def close(self) -> None:
        self._failed.close()
