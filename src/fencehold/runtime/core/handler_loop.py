"""The loop that the outbox worker and the item processor share: it asks the store for work until it is stopped."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any

from fencehold.model.election.retry import DecorrelatedJitter, RetryContext
from fencehold.model.errors import ConfigurationError, FenceholdError
from fencehold.ports.clock import Clock
from fencehold.ports.fact_table import OutageFacts
from fencehold.ports.time_limit import TimeLimit
from fencehold.runtime.core.keeper_thread import post_to
from fencehold.runtime.core.repeated_failures import Outage

CLOSE_SLACK_S = 5.0  # beyond its shutdown timeout
CANCEL_PART = 0.9  # of the shutdown timeout: then handlers are cancelled, and have the rest to end
PAUSE_BASE_S = 0.05


class HandlerLoop(ABC):
    """Base of the outbox worker and the item processor: `run` takes turns until `stop` is called.

    In a turn, the subclass asks the store for work and starts handlers. One turn ends before the next begins.
    """

    #: What messages call it.
    kind: str
    #: The longest pause after a turn that failed.
    pause_s_max: float

    def __init__(self, clock: Clock, facts: OutageFacts, wake: asyncio.Event) -> None:
        """`wake` is set when there may be something to do."""
        self._clock, self._wake = clock, wake
        self._loop: asyncio.AbstractEventLoop | None = None
        self.stopped = asyncio.Event()
        self._stopping = self._abandoned = False
        self._more = True  # worth asking for work: at the start, after a hint, after an answer that came back full
        self._has_worked = False  # a turn was answered: from then on every fault of the store is waited out
        self._failure: FenceholdError | None = None  # of the last turn
        self._failures = 0
        self._pauses = DecorrelatedJitter(base_s=PAUSE_BASE_S, max_s=self.pause_s_max)
        self._outage = Outage(facts, clock)

    # --- what a program calls ---

    @abstractmethod
    async def run(self) -> None:
        """Work until `stop()` is called."""

    def stop(self) -> None:
        """Begin no new work, finish what is in hand within the shutdown timeout; then `run` returns.

        Callable on any thread.
        """
        self._on_loop(self._begin_stopping)

    async def _run_shielded(self) -> None:
        """Call `run` in a task of its own.

        If the caller is cancelled, the task continues: the caller must call `stop()`.
        """
        await asyncio.shield(asyncio.ensure_future(self.run()))

    # --- what differs ---

    @property
    @abstractmethod
    def shutdown_timeout_s(self) -> float: ...

    @abstractmethod
    def _log_stopping(self) -> None: ...

    @abstractmethod
    def _log_store_failed(self, error: FenceholdError) -> None: ...

    @abstractmethod
    def _cancel_handlers(self) -> None:
        """Cancel the handlers that still run. Called when most of the shutdown timeout has passed."""

    # --- parts ---

    def _begin_run(self) -> None:
        """Record that `run` has begun. Raises ConfigurationError (`already_run`) the second time."""
        if self._loop is not None:
            raise ConfigurationError(
                f"This {self.kind} has been run already.", hint="Make another.", code="already_run"
            )
        self._loop = asyncio.get_running_loop()

    async def _attempt(self, turn: Coroutine[Any, Any, None]) -> None:
        """Take a turn. If the store does not answer, log that and pause, so that failing turns do not load the store.

        Raises a ConfigurationError if no turn has been answered before, because waiting would not help.
        """
        try:
            await turn
        except FenceholdError as error:
            if isinstance(error, ConfigurationError) and not self._has_worked:
                raise
            await self._endure(error)
        else:
            self._failures, self._failure, self._has_worked = 0, None, True
            self._outage.answered()

    async def _endure(self, error: FenceholdError) -> None:
        self._failures += 1
        self._failure = error
        self._log_store_failed(error)
        self._outage.failed(error)
        delay_s = self._pauses.next_delay_s(RetryContext(self._failures, 0.0, error)) or self.pause_s_max
        until_s, was_stopping = self._clock.now_s() + min(self.pause_s_max, delay_s), self._stopping
        while self._stopping is was_stopping and (left_s := until_s - self._clock.now_s()) > 0:
            self._wake.clear()
            await self._clock.wait(self._wake, left_s)
        self._more = True

    def _begin_stopping(self) -> None:
        if self._stopping:
            return
        self._stopping = True
        self._log_stopping()
        self._wake.set()
        if self._loop is not None:
            self._loop.call_later(self.shutdown_timeout_s * CANCEL_PART, self._call_off, self._loop)

    def _call_off(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel the handlers. They have the rest of the shutdown timeout to end.

        That rest is counted from now, because on an event loop that was blocked this method may be called late.
        """
        self._cancel_handlers()
        loop.call_later(self.shutdown_timeout_s * (1 - CANCEL_PART), self._abandon)

    def _abandon(self) -> None:
        """Stop waiting for the handlers that did not end after they were cancelled."""
        self._abandoned = True
        self._wake.set()

    def _on_loop(self, call: Callable[[], Any]) -> None:
        if self._loop is None:
            call()
        else:
            post_to(self._loop, call)  # on a closed loop nothing is running any more


async def stop_all(running: Iterable[HandlerLoop]) -> None:
    """Stop all these loops at once and wait for each, at most its shutdown timeout and CLOSE_SLACK_S more."""
    stopping = list(running)
    for one in stopping:
        one.stop()
    for one in stopping:
        with suppress(TimeoutError):
            async with TimeLimit(one.shutdown_timeout_s + CLOSE_SLACK_S):
                await one.stopped.wait()
