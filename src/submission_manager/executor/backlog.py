"""Counts late intents in the database, for the metrics only: nothing the leader does depends on it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from fencehold import FenceholdError
from submission_manager.context import ServiceContext
from submission_manager.executor.tenure import Tenure
from submission_manager.ports import AttemptPort


@dataclass(frozen=True)
class BacklogSettings:
    """`rows_max`: how many of the longest due intents one count reads at most."""

    look_every_s: float = 10.0
    late_s: int = 30
    rows_max: int = 100_000
    read_limit_s: float = 5.0


class BacklogWatch:
    """Counts in the database, not in the leader's own schedule: so it also sees intents that the schedule lost."""

    def __init__(self, attempts: AttemptPort, context: ServiceContext, settings: BacklogSettings | None = None) -> None:
        self._attempts, self._metrics, self._facts = attempts, context.metrics, context.facts
        self._settings = settings or BacklogSettings()

    async def run(self, tenure: Tenure) -> None:
        """Count at intervals until the term ends. A failed count does not end the term: no attempt depends on it."""
        settings = self._settings
        while True:
            tenure.check()
            try:
                self._metrics.backlog(
                    await self._attempts.backlog(settings.late_s, settings.rows_max, settings.read_limit_s)
                )
            except Exception as error:  # noqa: BLE001 - our own bug must not end the term either
                self._metrics.backlog(None)
                self._facts.fact("backlog_unknown", lease_name=tenure.term.name, sql_error=_words(error))
            await asyncio.sleep(settings.look_every_s)


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, FenceholdError) else f"{type(error).__name__}: {error}"
