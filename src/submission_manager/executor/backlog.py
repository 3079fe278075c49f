"""Counts late intents in the database, for the metrics only: nothing the leader does depends on it."""

from __future__ import annotations

import asyncio

from fencehold import FenceholdError
from submission_manager.context import ServiceContext
from submission_manager.executor.tenure import Tenure
from submission_manager.ports import AttemptPort

LOOK_EVERY_S = 10.0
LATE_S = 30
ROWS_MAX = 100_000  # of the longest due intents one count reads at most so many
READ_LIMIT_S = 5.0


class BacklogWatch:
    """Counts late intents at intervals, for the metrics.

    It counts in the database, not in the leader's own schedule: so it also sees intents that the schedule lost.
    """

    def __init__(self, attempts: AttemptPort, context: ServiceContext) -> None:
        self._attempts, self._metrics, self._facts = attempts, context.metrics, context.facts

    async def run(self, tenure: Tenure) -> None:
        """Count at intervals until the term ends. A failed count does not end the term: no attempt depends on it."""
        while True:
            tenure.check()
            try:
                self._metrics.backlog(await self._attempts.backlog(LATE_S, ROWS_MAX, READ_LIMIT_S))
            except Exception as error:  # noqa: BLE001 - our own bug must not end the term either
                self._metrics.backlog(None)
                self._facts.fact("backlog_unknown", lease_name=tenure.term.name, sql_error=_words(error))
            await asyncio.sleep(LOOK_EVERY_S)


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, FenceholdError) else f"{type(error).__name__}: {error}"
