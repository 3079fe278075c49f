"""`store.run_as_leader(...)`: runs a job while this process leads, and tries it again when it fails.

The steps are the same with and without an event loop: `next_term`, the job, `failed` if the job raised, and at last
`end`. The async store runs the steps in `run`; `fencehold.sync` runs them around a job in the calling thread.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from fencehold.model.election.retry import DecorrelatedJitter, RetryContext, RetryStrategy
from fencehold.model.errors import ConfigurationError, LeaseLost
from fencehold.ports.clock import Clock
from fencehold.ports.fact_table import LeaseFacts
from fencehold.runtime.context import StoreContext
from fencehold.runtime.core.clock import first_done
from fencehold.runtime.election.leader import Leader
from fencehold.runtime.election.term import Term
from fencehold.runtime.election.terms import Terms
from fencehold.runtime.handlers.error_text import described, in_full
from fencehold.runtime.handlers.handlers import check_callable, is_async, refuse_unfinished

BAD_JOB = "bad_job"
ASYNC_HINT = (
    "Give `async def job(term)`. A plain function cannot be stopped when its term ends: use fencehold.sync, or call it"
    " with `await asyncio.to_thread(...)` and let it ask `term.is_valid`."
)
SYNC_HINT = "Give a plain `def job(term)` that asks `term.is_valid`; an async job belongs to fencehold.connect()."


BACKOFF_BASE_S, BACKOFF_MAX_S = 1.0, 60.0
HEALTHY_S = 60.0  # if a job fails after running this long, the pauses start again with the shortest


class NotAwaitable(ConfigurationError):
    """The error for a job that was called and did not return an awaitable, so it is not async."""


def check_async_job(job: Callable[[Any], Any]) -> None:
    """Raise ConfigurationError (`bad_job`) if the job is surely not an async function of one argument."""
    _check_callable(job, ASYNC_HINT)
    inner = _inner(job)
    if (inspect.isroutine(inner) or inspect.isclass(inner)) and not is_async(inner):
        raise ConfigurationError(f"{_name(job)} is not async.", hint=ASYNC_HINT, code=BAD_JOB)


def check_sync_job(job: Callable[[Any], Any]) -> None:
    """Raise ConfigurationError (`bad_job`) if the job is surely not a plain function of one argument."""
    _check_callable(job, SYNC_HINT)
    if is_async(_inner(job)):
        raise ConfigurationError(f"{_name(job)} is async.", hint=SYNC_HINT, code=BAD_JOB)


async def awaited(answer: Awaitable[Any]) -> Any:
    """Await what an async job returned, and return the job's result.

    Raises NotAwaitable if the job is not async, TypeError if its result is something that should have been awaited.
    """
    if not inspect.isawaitable(answer):
        raise NotAwaitable(f"The job returned {answer!r:.80}: it is not async.", hint=ASYNC_HINT, code=BAD_JOB)
    value = await answer
    refuse_unfinished(value)
    return value


def returned(answer: Any) -> Any:
    """Return a plain job's result unchanged. Raises TypeError if it is something that should have been awaited."""
    refuse_unfinished(answer)
    return answer


def _check_callable(job: Callable[[Any], Any], hint: str) -> None:
    if not callable(job):
        raise ConfigurationError(f"The job is {job!r:.80}, which cannot be called.", hint=hint, code=BAD_JOB)
    try:
        check_callable(job, "term")
    except ConfigurationError as error:
        raise ConfigurationError(error.message, hint=hint, code=BAD_JOB) from None


def _inner(job: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the function inside partials and decorators."""
    while isinstance(job, functools.partial):
        job = job.func
    inner: Callable[[Any], Any] = inspect.unwrap(job)
    return inner


def _name(job: Callable[[Any], Any]) -> str:
    return f"The job {getattr(job, '__qualname__', None) or repr(job):.80}"


@dataclass(frozen=True)
class Returned:
    """The outcome of a job that returned while its term was valid: the job is done."""

    value: Any


@dataclass(frozen=True)
class Raised:
    """The outcome of a job that raised: the job has failed."""

    error: BaseException


class Pauses:
    """Counts the failures in a row, and says how long to wait after each, as a retry strategy decides."""

    def __init__(self, strategy: RetryStrategy | None, clock: Clock) -> None:
        self._strategy = strategy or DecorrelatedJitter(BACKOFF_BASE_S, BACKOFF_MAX_S)
        self._clock = clock
        self.failures = 0
        self._since_s = 0.0

    def after(self, error: BaseException, ran_s: float) -> float | None:
        """Return the seconds to wait before the next try; None if the strategy gives up."""
        now_s = self._clock.now_s()
        if self.failures == 0 or ran_s >= HEALTHY_S:
            self.failures, self._since_s = 0, now_s
        self.failures += 1
        last_error = error if isinstance(error, Exception) else None
        return self._strategy.next_delay_s(RetryContext(self.failures, now_s - self._since_s, last_error))


class LeaderJob:
    """Runs one job with one leader, on one event loop.

    `until` is awaited at the same time: when it returns, the job is stopped.
    """

    def __init__(
        self,
        leader: Leader,
        store: StoreContext,
        backoff: RetryStrategy | None,
        until: Callable[[], Coroutine[Any, Any, object]] | None,
    ) -> None:
        self.leader = leader
        self._pauses, self._until = Pauses(backoff, store.clock), until
        self._clock, self._sink = store.clock, store.facts.sink
        self._stopped = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None
        self._terms: Terms | None = None
        self._has_led = False
        self._began_s = 0.0
        self._pause_s = 0.0

    async def run(self, job: Callable[[Term], Any]) -> Any:
        """Run the job and return its result; return None if it was stopped before it was done.

        Raises ConfigurationError when a retry cannot help, and the job's error when the backoff gives up.
        """
        try:
            while (term := await self.next_term()) is not None:
                match await self._under(term, job):
                    case Returned(value):
                        self.done(term)
                        return value
                    case Raised(error):
                        await self.failed(term, error)
        except Exception as error:
            self.gave_up(error)
            raise
        finally:
            await self.end()

    async def _under(self, term: Term, job: Callable[[Term], Any]) -> Returned | Raised | None:
        """Run the job under this term. Returns None if the term ended first, which is not a failure of the job."""
        task = asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        cancelling = task.cancelling()
        try:
            async with term:
                value = await awaited(job(term))
                return Returned(value) if term.is_valid else None
        except NotAwaitable:
            raise
        except asyncio.CancelledError as error:
            if task.cancelling() > cancelling:
                raise
            return Raised(error)  # something that the job awaited was cancelled, not the job itself
        except Exception as error:  # noqa: BLE001 - any error is logged, and the job is tried again
            return None if is_end_of(term, error) else Raised(error)
        return None

    def stop(self) -> None:
        """Stop leading: the current term ends, and `next_term` returns None."""
        self._stopped.set()

    # --- the steps ---

    async def next_term(self) -> Term | None:
        """Wait until this process leads, and return its term; after a failure of the job, pause before that.

        Returns None once the job was stopped.
        """
        if self._watch is None:
            self._watch = asyncio.create_task(self._shut_down_when_stopped())
        while not await self._clock.wait(self._stopped, self._pause_s):
            self._pause_s = 0.0
            try:
                if self._terms is None:
                    await self.leader.start()
                    self._terms = self.leader.terms()
                term = await anext(self._terms, None)
            except ConfigurationError as error:
                self._not_started(error)
                continue
            self._has_led, self._began_s = True, self._clock.now_s()
            return term
        return None

    def _not_started(self, error: ConfigurationError) -> None:
        """Handle an error of the leader's start, such as a missing right or table.

        Raises the error, unless this job's leader has led before: then the start is tried again later.
        """
        pause_s = self._pauses.after(error, 0.0) if self._has_led else None
        if pause_s is None:
            raise error
        self._pause_s, self._terms = pause_s, None
        self._facts().leader_job_not_started(error=described(error), retry_in_s=round(pause_s, 3))

    def done(self, term: Term) -> None:
        self._facts(term).leader_job_done()

    async def failed(self, term: Term, error: BaseException) -> None:
        """Log the job's error, give the lease back so that another process may try, and make `next_term` pause first.

        Raises the error if the backoff gives up.
        """
        pause_s = self._pauses.after(error, self._clock.now_s() - self._began_s)
        self._facts(term).leader_job_failed(
            error=_said_by(error), failures=self._pauses.failures,
            retry_in_s=None if pause_s is None else round(pause_s, 3), traceback=in_full(error) or None,
        )  # fmt: skip
        if pause_s is None:
            raise error
        self._pause_s, self._terms = pause_s, None
        await self.leader.step_down(self.leader.settings.lease_s)  # because `release_on_stop` may be off
        await self._shut_down()

    def gave_up(self, error: Exception) -> None:
        """Log the error that ends `run_as_leader`, because nobody may ever look at the error of a background task."""
        self._facts().leader_job_gave_up(error=described(error))

    async def end(self) -> None:
        """Give the lease back and stop. Idempotent."""
        if self._watch is not None:
            self._watch.cancel()
        await self._shut_down()

    # --- parts ---

    async def _shut_down_when_stopped(self) -> None:
        await first_done(self._stopped.wait(), *([self._until()] if self._until is not None else []))
        self._stopped.set()
        await self._shut_down()

    async def _shut_down(self) -> None:
        await self.leader.shutdown(self.leader.settings.lease_s)

    def _facts(self, term: Term | None = None) -> LeaseFacts:
        leader = self.leader
        return LeaseFacts(self._sink, leader.name, leader.holder_id, term.epoch if term is not None else None)


def is_end_of(term: Term, error: BaseException) -> bool:
    """Return whether the error is the LeaseLost of this term: it has the same lease name and epoch."""
    return isinstance(error, LeaseLost) and (error.name, error.epoch) == (term.name, term.epoch)


def _said_by(error: BaseException) -> str:
    if isinstance(error, asyncio.CancelledError):
        return "CancelledError: raised in the job, or in what it waited for; nobody cancelled the job itself"
    return described(error)
