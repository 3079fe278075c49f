"""The lifecycle of one candidate: runs the state table of model/election/election.py on a lease or a lock.

There is one private method per state; it returns the input that ends the state. The state changes before callbacks are
sent and before anything that can block.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Generic, Self, TypeVar

from fencehold.model.election.election import Circumstances, Emit, Input, LockState, transition
from fencehold.model.election.retry import RetryContext, RetryStrategy
from fencehold.ports.clock import Clock
from fencehold.ports.fact_table import StoreFacts
from fencehold.ports.mechanism import Mechanism, Unanswered
from fencehold.ports.time_limit import TimeLimit
from fencehold.runtime.core.callbacks import DELIVERY_LIMIT_S, DRAIN_LIMIT_S, Callbacks, Registers
from fencehold.runtime.core.clock import first_done

G = TypeVar("G")
T = TypeVar("T")
LEADING = (LockState.LEADER, LockState.RELEASING)
STEP_DOWN_REQUESTED = "step_down_requested"
HEAD_START_S = 1.0  # how long a leader that steps down ignores hints; SQLite followers poll four times in it


class Limit:
    """Divides the timeout of `shutdown` or `step_down` between the release of the lease and the callbacks.

    The timeout starts when this object is created; None: no limit.
    """

    def __init__(self, timeout_s: float | None) -> None:
        self._timeout_s = timeout_s
        self._began_s = asyncio.get_running_loop().time()

    @property
    def of_release_s(self) -> float | None:
        """Seconds for the release: 80 % of the timeout; None: no limit.

        A release that hangs is cut off after these seconds, early enough to call the callbacks before the timeout ends.
        """
        return self._timeout_s * 0.8 if self._timeout_s is not None else None

    @property
    def of_callbacks_s(self) -> float:
        """Seconds that are left for the callbacks."""
        if self._timeout_s is None:
            return DELIVERY_LIMIT_S
        return self._began_s + self._timeout_s - asyncio.get_running_loop().time()


@dataclass(frozen=True)
class ElectionSettings:
    auto_reacquire: bool = True
    grace_s: float | None = None


class Election(Generic[G]):
    """Runs one candidate's lifecycle: seeks leadership through `mechanism` (a lease or a lock), leads, gives it up.

    It never leads without a grant. Its state stops being LEADER before any callback is called.
    """

    def __init__(
        self,
        mechanism: Mechanism[G],
        settings: ElectionSettings,
        retry: RetryStrategy,
        callbacks: Callbacks,
        clock: Clock,
        on_state: Callable[[LockState, LockState, str], None],
    ) -> None:
        self._mechanism = mechanism
        self._settings = settings
        self._retry = retry
        self._callbacks = callbacks
        self._clock = clock
        self._on_state = on_state
        self.state = LockState.STOPPED
        self.has_stopped = False  # False also before it has begun
        self.closed = asyncio.Event()  # its mechanism is closed; only callbacks may still run
        self.is_replaced = False  # its owner has started another election
        self.last_delivered = 0  # the number of the last callback of the last transition
        self.grant: G | None = None
        self.stop = asyncio.Event()
        self.step_down = asyncio.Event()
        self.changed = asyncio.Event()
        self._circumstances = Circumstances(settings.auto_reacquire, settings.grace_s is not None)
        self._attempt = 0
        self._first_attempt_s = 0.0
        self._last_error: Exception | None = None
        self._yielding = False

    async def run(self) -> None:
        """Run from START to STOPPED, whatever happens in between.

        If this call is cancelled, it waits for the last callbacks, at most 2 s: an event loop that closes waits for
        this task, but not for tasks that begin later.
        """
        try:
            await self._until_stopped()
        except asyncio.CancelledError:
            if not await self._callbacks.delivered(DRAIN_LIMIT_S) and not self.is_replaced:
                self._callbacks.drop()
            raise

    async def _until_stopped(self) -> None:
        self._apply(Input.START)
        try:
            while self.state is not LockState.STOPPED:
                on = await self._live()
                if not self.has_stopped:  # else `cut_off` was called meanwhile
                    self._apply(on)
        except asyncio.CancelledError:
            self.cut_off()
            raise
        finally:
            self.has_stopped = True
            try:
                await self._mechanism.close()
            finally:
                self.closed.set()

    async def make_way(self) -> bool:
        """Wait until a stopped election is closed; mark it as replaced. Returns whether another election may begin."""
        if self.has_stopped:
            await self.closed.wait()
            self.is_replaced = True
        return self.is_replaced

    def ended(self) -> None:
        """Record that the election's task has ended, in whatever way: the election is stopped and closed."""
        self.cut_off()
        self.closed.set()

    def cut_off(self) -> None:
        """Go to STOPPED at once, because nothing is held any more, and send the callbacks for that. Idempotent."""
        self.has_stopped = True
        if self.state is not LockState.STOPPED:
            self._apply(Input.CUT_OFF)
        self.changed.set()

    @property
    def is_over(self) -> bool:
        """True once the election has stopped and its last callbacks were sent; the mechanism may still be closing."""
        return self.has_stopped and self.state is LockState.STOPPED

    def _live(self) -> Coroutine[Any, Any, Input]:
        match self.state:
            case LockState.FOLLOWER:
                return self._follow()
            case LockState.ACQUIRING:
                return self._acquire()
            case LockState.LEADER:
                return self._lead()
            case LockState.RECONNECTING:
                return self._reconnect()
            case LockState.RELEASING:
                return self._release()
            case LockState.STOPPED:
                raise AssertionError("a stopped election does not run")

    def _apply(self, on: Input) -> None:
        row = transition(self.state, on, self._circumstances)
        assert row is not None, f"{on} means nothing in {self.state}"
        old, self.state = self.state, row.target
        self.changed.set()
        self.changed = asyncio.Event()
        if row.target is not old:
            self._on_state(old, row.target, on.value)
            self._callbacks.state_changed(old, row.target)
        for emit in row.emits:
            self._callbacks.emit(emit, self._last_error if emit is Emit.ERROR else None)
        self.last_delivered = self._callbacks.sent

    # --- one method per state ---

    async def _follow(self) -> Input:
        self.step_down.clear()
        if self._attempt > 0 or self._yielding:
            delay_s = self._delay_s()
            if delay_s is None:
                return Input.GAVE_UP
            if self._yielding:
                # Ignore hints for a moment, so that others can acquire first; but not for longer, or nobody would
                # notice a lease that becomes free again meanwhile.
                head_start_s = min(delay_s, HEAD_START_S)
                delay_s -= head_start_s
                await self._clock.wait(self.stop, head_start_s)
            await self._mechanism.pause(delay_s, self.stop)
        self._yielding = False
        return Input.STOP_REQUESTED if self.stop.is_set() else Input.ACQUIRE_ATTEMPT

    async def _acquire(self) -> Input:
        if self._attempt == 0:
            self._first_attempt_s = self._clock.now_s()
        self._attempt += 1
        done, answer = await self._unless_stopped(self._mechanism.attempt())
        if not done:
            return Input.STOP_REQUESTED
        if isinstance(answer, Exception):
            self._last_error = answer
            return Input.DB_ERROR
        if answer is None:
            self._last_error = None
            return Input.ACQUIRE_FAILED
        self.grant = answer
        self._attempt = 0
        return Input.ACQUIRE_SUCCEEDED

    async def _lead(self) -> Input:
        assert self.grant is not None, "the table leads here only with a grant"
        hold, *_ = await first_done(self._mechanism.hold(self.grant), self.stop.wait(), self.step_down.wait())
        if hold.done() and not hold.cancelled():
            error = hold.exception()
            if error is None and hold.result() == STEP_DOWN_REQUESTED:
                self.step_down.set()
            else:
                return self._over(error)
        if self.stop.is_set():
            return Input.STOP_REQUESTED
        self._circumstances = replace(self._circumstances, stepping_down=True)
        return Input.RELEASE_REQUESTED

    def _over(self, error: BaseException | None) -> Input:
        if self._settings.grace_s is None:
            self.grant = None
        if isinstance(error, Exception):
            self._last_error = error
            return Input.DB_ERROR
        return Input.HEALTH_FAILED

    async def _reconnect(self) -> Input:
        """Make attempts during the grace period, with the retry strategy's pauses.

        Returns the input for the state table when an attempt is answered, the time is over, or a stop is requested.
        """
        self.grant = None
        end_s = self._clock.now_s() + (self._settings.grace_s or 0.0)
        self._attempt = 0
        while (left_s := end_s - self._clock.now_s()) > 0:
            try:
                async with TimeLimit(left_s):
                    done, answer = await self._unless_stopped(self._mechanism.attempt())
            except TimeoutError:
                break
            if not done:
                return Input.STOP_REQUESTED
            if not isinstance(answer, Exception):
                return self._regained(answer)
            self._last_error = answer
            self._attempt += 1
            delay_s = self._delay_s()
            if delay_s is None:
                return Input.REACQUIRE_FAILED
            left_s = max(0.0, end_s - self._clock.now_s())
            if await self._clock.wait(self.stop, min(delay_s, left_s)):
                return Input.STOP_REQUESTED
        return Input.GRACE_EXPIRED

    def _regained(self, answer: G | None) -> Input:
        if answer is None:
            return Input.REACQUIRE_FAILED
        self.grant = answer
        self._attempt = 0
        self._circumstances = replace(self._circumstances, new_term=self._mechanism.is_new_term(answer))
        return Input.REACQUIRE_SUCCEEDED

    async def _release(self) -> Input:
        assert self.grant is not None, "the table releases only what was granted"
        grant, self.grant = self.grant, None
        self._yielding = self._circumstances.stepping_down
        try:
            outcome = (
                Input.RELEASE_SUCCEEDED if await self._mechanism.release(grant, self.stop) else Input.RELEASE_FAILED
            )
        except Unanswered as unanswered:
            self._last_error = unanswered.error
            outcome = Input.RELEASE_UNANSWERED
        except Exception as error:  # noqa: BLE001 - any error goes to on_error, and the grant is over
            self._last_error = error
            return Input.DB_ERROR
        if self.stop.is_set():
            self._circumstances = replace(self._circumstances, stepping_down=False)
        return outcome

    # --- parts ---

    def _delay_s(self) -> float | None:
        """Return the seconds until the next attempt; None: no further attempt is to be made."""
        if self._mechanism.is_hopeless(self._last_error):
            return None
        elapsed_s = self._clock.now_s() - self._first_attempt_s if self._attempt else 0.0
        return self._retry.next_delay_s(RetryContext(max(1, self._attempt), elapsed_s, self._last_error))

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> tuple[bool, T | Exception | None]:
        """Run `work` and return True with its result or error; if a stop comes first, cancel it: False, None."""
        task, _ = await first_done(work, self.stop.wait())
        if not task.done():
            return False, None
        error = task.exception()
        if error is not None and not isinstance(error, Exception):
            raise error
        return True, error if error is not None else task.result()


class Candidate(Registers, ABC, Generic[G]):
    """What leaders and locks share: one election at a time, its task, and the callers that wait for it."""

    def __init__(self, facts: StoreFacts) -> None:
        self._callbacks = Callbacks(facts)
        self._election: Election[G] | None = None
        self._task: asyncio.Task[None] | None = None
        self._begun = asyncio.Event()  # set when it is first started, or stopped before that

    @property
    def state(self) -> LockState:
        return self._election.state if self._election is not None else LockState.STOPPED

    @property
    @abstractmethod
    def _leadership(self) -> object | None:
        """The term or grant by which this process leads now, a new object for each; None while it does not lead."""

    @abstractmethod
    async def start(self) -> None:
        """Begin to seek leadership. Idempotent."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    def _is_over(self, election: Election[G]) -> bool:
        return election.is_over

    async def _leadership_or_end(self, after: object | None = None) -> object | None:
        """Wait for a term or grant other than `after` by which this process leads; return it, or None once stopped."""
        while (election := self._election) is not None:
            changed = election.changed
            if (leadership := self._leadership) is not None and leadership is not after:
                return leadership
            if self._is_over(election):
                return None
            await changed.wait()
        return None

    async def _leads_or_over(self, timeout_s: float | None) -> None:
        """Wait until this process leads and `on_acquired` has run, or until it has stopped and all callbacks have run.

        Also returns, without an error, when the timeout is over.
        """
        with suppress(TimeoutError):
            async with TimeLimit(timeout_s):
                await self._begun.wait()
                while (leadership := await self._leadership_or_end()) is not None:
                    election = self._election
                    await self._callbacks.delivered(upto=election.last_delivered if election is not None else 0)
                    if self._leadership is leadership:
                        return
                await self._callbacks.delivered()

    async def _stopped(self, election: Election[G], task: asyncio.Task[None], timeout_s: float | None) -> None:
        """Stop the election, and cut it off when the timeout is over; then wait for the callbacks.

        Callbacks have what is left of the timeout, at least 2 s; those that have not run by then are dropped.
        """
        limit = Limit(timeout_s)
        election.stop.set()
        if not task.done():
            await asyncio.wait([task], timeout=timeout_s)
        callbacks = Limit(max(DRAIN_LIMIT_S, limit.of_callbacks_s))
        if not task.done():
            await self._cut_off(election, task, timeout_s)
        if not await self._callbacks.delivered(callbacks.of_callbacks_s) and self._task is task:
            self._callbacks.drop()  # else a callback has started it again

    @abstractmethod
    async def _cut_off(self, election: Election[G], task: asyncio.Task[None], timeout_s: float | None) -> None:
        """End the election's task, because the shutdown's timeout is over; log that and send an error."""

    @staticmethod
    async def _stepped_down(election: Election[G], timeout_s: float | None) -> bool:
        """Wait until the election no longer leads. Returns True then, False if the timeout is over first."""
        try:
            async with TimeLimit(timeout_s):
                while election.state in LEADING:
                    await election.changed.wait()
        except TimeoutError:
            return False
        return True
