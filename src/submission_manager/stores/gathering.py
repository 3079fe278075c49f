"""Submissions that arrive together are stored together: one statement and one commit for many submissions.

While a lane stores a batch, the next submissions collect; a batch never waits to become full.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fencehold import Unavailable, Uncertain
from submission_manager.model.intents import NewIntent
from submission_manager.ports import Submitted

BATCH_ROWS_MAX = 256
BATCH_BYTES_MAX = 4_000_000

StoreBatch = Callable[[list[NewIntent], float], Awaitable[list[Submitted]]]


@dataclass(slots=True, eq=False)
class _Waiting:
    new: NewIntent
    ends_s: float  # by the event loop's clock
    answer: asyncio.Future[Submitted]
    is_sent: bool = False


class Gathering:
    """Collects submissions into batches and stores each batch with one call of `store_batch`.

    Each submission is answered within its own limit, whatever happens to its batch.
    """

    def __init__(self, store_batch: StoreBatch, lanes: int) -> None:
        self._store_batch = store_batch
        self._lanes = lanes
        self._waiting: deque[_Waiting] = deque()
        self._busy: set[asyncio.Task[None]] = set()

    async def submit(self, new: NewIntent, limit_s: float) -> Submitted:
        loop = asyncio.get_running_loop()
        one = _Waiting(new, loop.time() + limit_s, loop.create_future())
        timer = loop.call_later(limit_s, _expire, one, limit_s)
        self._waiting.append(one)
        self._set_off()
        try:
            return await one.answer
        finally:
            timer.cancel()

    async def close(self) -> None:
        lanes = list(self._busy)
        for lane in lanes:
            lane.cancel()
        await asyncio.gather(*lanes, return_exceptions=True)
        while batch := self._batch():
            _fail(batch, Unavailable("The store was closed.", code="store_closed"))

    def _set_off(self) -> None:
        if len(self._busy) < self._lanes:
            self._busy.add(asyncio.get_running_loop().create_task(self._drain()))

    async def _drain(self) -> None:
        lane = asyncio.current_task()
        assert lane is not None, "a lane is a task"
        try:
            while batch := self._batch():
                await self._store(batch)
        finally:
            self._busy.discard(lane)  # here, not when the task is done: a submission in between must find a free lane

    def _batch(self) -> list[_Waiting]:
        """Take and return the next batch, without callers that have left.

        It has at most one submission of each id, so that each gets its own answer.
        """
        batch: list[_Waiting] = []
        ids: set[str] = set()
        size = 0
        while self._waiting and len(batch) < BATCH_ROWS_MAX and size < BATCH_BYTES_MAX:
            one = self._waiting[0]
            if one.new.intent_id in ids:
                break
            self._waiting.popleft()
            if not one.answer.done():
                one.is_sent = True
                batch.append(one)
                ids.add(one.new.intent_id)
                size += len(one.new.payload or b"")
        return batch

    async def _store(self, batch: list[_Waiting]) -> None:
        limit_s = max(one.ends_s for one in batch) - asyncio.get_running_loop().time()
        try:
            answers = await self._store_batch([one.new for one in batch], max(limit_s, 0.001))
        except Unavailable as error:
            if error.code == "store_error" and len(batch) > 1:  # one of them caused the refusal: store each alone
                for one in batch:
                    await self._store([one])
            else:
                _fail(batch, error)
        except asyncio.CancelledError:
            _fail(batch, Uncertain("The store was closed under way.", code="store_closed"))
            raise
        except Exception as error:  # noqa: BLE001 - every error goes to the waiting callers
            _fail(batch, error)
        else:
            for one, answer in zip(batch, answers, strict=True):
                if not one.answer.done():
                    one.answer.set_result(answer)


def _fail(batch: list[_Waiting], error: Exception) -> None:
    for one in batch:
        if not one.answer.done():
            one.answer.set_exception(copy.copy(error))  # a copy for each: a traceback grows where it is raised


def _expire(one: _Waiting, limit_s: float) -> None:
    if one.answer.done():
        return
    if one.is_sent:
        one.answer.set_exception(Uncertain(f"No answer within {limit_s:.1f} s.", code="no_answer"))
    else:
        one.answer.set_exception(
            Unavailable(f"The database was busy: the intent was not sent to it within {limit_s:.1f} s.", code="busy")
        )
