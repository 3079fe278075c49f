"""Ends each intent when its deadline passes, and not only when its turn for an attempt comes.

Guaranteed: the end is recorded as soon as the deadline has passed by the database's clock and this leader can write,
whatever waits in the intent's lane (the queue of its gateway) and whatever that gateway does. Many intents are ended in
batches, one batch at a time, so that attempts go on meanwhile. An intent whose gateway call is under way ends with that
call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fencehold import FenceholdError, LeaseLost
from submission_manager.context import ServiceContext
from submission_manager.executor.ends import Ends
from submission_manager.executor.parking import Parking, is_locked, unanswered
from submission_manager.executor.tenure import SQL_ERRORS, Dropped, Tenure
from submission_manager.ports import AttemptPort, Expired
from submission_manager.schedule.schedule import Job

BATCH_ROWS = 500
AGAIN_S = 1.0  # for rows that another session has locked, or if our estimate of the database's clock was early
LOG_EVERY_S = 30.0
PUT_OFF = "another session has locked its row, or the database's clock was set back; tried again every second"


class Expiry:
    """Ends intents whose deadline has passed, but only those without an attempt under way, and only in a valid term."""

    def __init__(
        self,
        attempts: AttemptPort,
        ends: Ends,
        parking: Parking,
        write_limit_s: float,
        context: ServiceContext,
    ) -> None:
        self._attempts, self._ends, self._parking, self._write_limit_s = attempts, ends, parking, write_limit_s
        self._clock, self._metrics, self._facts = context.clock, context.metrics, context.facts
        self._writes = context.writes
        self._logged_s = -LOG_EVERY_S

    async def run(self, tenure: Tenure) -> None:
        """End intents past their deadline, until the term ends."""
        while True:
            tenure.check()
            tenure.deadlines.clear()
            now_us = tenure.store_clock.now_us()
            jobs = tenure.schedule.expired(now_us, BATCH_ROWS)
            if jobs:
                await self._end(tenure, jobs)
            else:
                await self._clock.wait(tenure.deadlines, self._rest_s(tenure, now_us))

    async def _end(self, tenure: Tenure, jobs: Sequence[Job]) -> None:
        try:
            answer = await self._written(tenure, [job.intent_id for job in jobs])
        except (Dropped, asyncio.CancelledError):
            raise
        except LeaseLost:
            self._metrics.fenced_out.labels("expire").inc()
            raise
        except TimeoutError:
            self._held_up(tenure, jobs, unanswered(self._write_limit_s))
        except SQL_ERRORS as error:
            if is_locked(error):
                self._held_up(tenure, jobs, error)
                return
            tenure.troubled("expire", error)
            self._put_back(tenure, jobs, AGAIN_S)
        except Exception as error:  # noqa: BLE001 - one bad intent must not keep the others from ending
            if len(jobs) == 1:
                self._put_back(tenure, jobs, self._parking.poisoned([jobs[0].intent_id], "expire", error))
                return
            half = len(jobs) // 2
            await self._end(tenure, jobs[:half])
            await self._end(tenure, jobs[half:])
        else:
            self._settle(tenure, jobs, answer)

    async def _written(self, tenure: Tenure, intent_ids: Sequence[str]) -> Expired:
        async with self._writes:
            tenure.check()
            # Time out before the transaction's own limit, the end of the lease: that would look like a failed database.
            async with asyncio.timeout(min(self._write_limit_s, tenure.term.remaining_s / 2)):
                return await self._attempts.expire(tenure.term, intent_ids)

    def _settle(self, tenure: Tenure, jobs: Sequence[Job], answer: Expired) -> None:
        pending = set(answer.pending)
        for job in jobs:
            if job.intent_id not in pending:
                tenure.schedule.settle(job, None)
        self._put_off(tenure, [job for job in jobs if job.intent_id in pending])
        for _ in range(answer.unknown):
            self._metrics.attempt("unknown", None)
        for over in answer.over:
            self._ends.put(tenure, over)

    def _put_off(self, tenure: Tenure, jobs: Sequence[Job]) -> None:
        """Try again later to end these intents. Logs this rarely, because it tries every second."""
        self._put_back(tenure, jobs, AGAIN_S)
        now_s = self._clock.now_s()
        if jobs and now_s - self._logged_s >= LOG_EVERY_S:
            self._logged_s = now_s
            self._facts.fact("expiry_put_off", intent_id=jobs[0].intent_id, intents=len(jobs), why=PUT_OFF)

    def _held_up(self, tenure: Tenure, jobs: Sequence[Job], error: FenceholdError) -> None:
        self._parking.held_up([job.intent_id for job in jobs], "expire", error)
        self._put_back(tenure, jobs, AGAIN_S)

    def _put_back(self, tenure: Tenure, jobs: Sequence[Job], again_s: float) -> None:
        """Put the intents back into the schedule and try again after `again_s` to end them.

        They stay due as before, because our estimate of the database's clock may have been early.
        """
        again_us = tenure.store_clock.now_us() + int(again_s * 1_000_000)
        for job in jobs:
            tenure.schedule.settle(job, job.due_us, expires_us=again_us)
        if jobs:
            tenure.work.set()

    def _rest_s(self, tenure: Tenure, now_us: int) -> float | None:
        until_us = tenure.schedule.next_deadline_us()
        return None if until_us is None else max(0, until_us - now_us) / 1_000_000 + 0.000_5
