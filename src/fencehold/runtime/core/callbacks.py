"""Registration of callbacks, decorator style, shared by every face of the election."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fencehold.model.election.election import Emit, LockState
from fencehold.model.errors import ConfigurationError
from fencehold.ports.facts import FactSink
from fencehold.runtime.core.dispatcher import Dispatcher
from fencehold.runtime.core.shared_limit import TOLD_LIMIT_S

Callback = Callable[[], None] | Callable[[], Awaitable[None]]
StateChangeCallback = Callable[[LockState, LockState], None] | Callable[[LockState, LockState], Awaitable[None]]
ErrorCallback = Callable[[Exception], None] | Callable[[Exception], Awaitable[None]]

C = TypeVar("C", bound=Callback)
S = TypeVar("S", bound=StateChangeCallback)
E = TypeVar("E", bound=ErrorCallback)

STATE_CHANGE = "on_state_change"
TERM_ENDS = (Emit.LOST, Emit.RELEASED)


def check(event: str, fn: object) -> None:
    if not callable(fn):
        raise ConfigurationError(f"{event} takes a function, not {fn!r}.", code="bad_callback")


class Callbacks:
    """Several per event, called in the order they were registered; a broken one goes to on_error, never further."""

    def __init__(self, facts: FactSink) -> None:
        self._registered: dict[str, list[Callable[..., object]]] = defaultdict(list)
        self._facts = facts
        self._forwarding = False
        self.dispatcher = Dispatcher(self.broken)

    def add(self, event: str, fn: Callable[..., object]) -> None:
        check(event, fn)
        self._registered[event].append(fn)

    def state_changed(self, old: LockState, new: LockState) -> None:
        for fn in self._registered[STATE_CHANGE]:
            self.dispatcher.send(fn, old, new)

    def emit(self, emit: Emit, error: Exception | None) -> None:
        if emit in TERM_ENDS:
            self.dispatcher.hurry()
        for fn in self._registered[emit.value]:
            if emit is Emit.ERROR:
                self.dispatcher.send(fn, error)
            else:
                self.dispatcher.send(fn, ends_term=emit in TERM_ENDS)

    @property
    def sent(self) -> int:
        """The number of the last callback that is due."""
        return self.dispatcher.sent

    async def delivered(self, limit_s: float = TOLD_LIMIT_S, *, upto: int | None = None) -> bool:
        """Wait until the callbacks that are due have run, or those up to this number; False past the limit.

        What becomes due meanwhile is not waited for, except `on_error` for one of these. Inside a callback it waits
        for none.
        """
        return self.dispatcher.is_delivering_here() or await self.dispatcher.drain(limit_s, upto)

    def drop(self) -> None:
        """Cancel the callback that runs and forget those that wait: the leader was shut down."""
        for name in self.dispatcher.stop():
            self._facts.fact("callback_failed", error=f"{name} had not ended when the time of the shutdown was over")

    def broken(self, error: Exception, culprit: Callable[..., object] | None = None) -> None:
        """A fault that is nobody's answer: told, and forwarded to on_error, unless that is what broke."""
        self._facts.fact("callback_failed", error=f"{type(error).__name__}: {error}")
        listeners = self._registered[Emit.ERROR.value]
        if culprit in listeners or self._forwarding:
            return
        # Through the dispatcher: on_error may be a coroutine, and has its limit like every other callback. The flag is
        # for a full queue: forwarding drops another callback, whose error would be forwarded in turn, without end.
        self._forwarding = True
        for fn in listeners:
            self.dispatcher.send(fn, error)
        self._forwarding = False


class Registers:
    """The registration methods; each returns the function unchanged, so that it works as a decorator.

    Callbacks are called in the order of the transitions, one at a time. A plain function must not block; a coroutine
    has 10 s, and 1 s at most once the term it was told of is over. One that raises or overruns goes to `on_error`.
    """

    _callbacks: Callbacks

    def on_acquired(self, fn: C) -> C:
        """We lead from now on."""
        self._callbacks.add(Emit.ACQUIRED.value, fn)
        return fn

    def on_released(self, fn: C) -> C:
        """We gave leadership up ourselves, and the store has confirmed it."""
        self._callbacks.add(Emit.RELEASED.value, fn)
        return fn

    def on_lost(self, fn: C) -> C:
        """Leadership was taken from us, or can no longer be proven."""
        self._callbacks.add(Emit.LOST.value, fn)
        return fn

    def on_acquire_failed(self, fn: C) -> C:
        """An attempt was refused: somebody else leads."""
        self._callbacks.add(Emit.ACQUIRE_FAILED.value, fn)
        return fn

    def on_state_change(self, fn: S) -> S:
        """Called with the old and the new state, before the other callbacks of that transition."""
        self._callbacks.add(STATE_CHANGE, fn)
        return fn

    def on_error(self, fn: E) -> E:
        """The store did not answer as it should, or another callback raised or overran."""
        self._callbacks.add(Emit.ERROR.value, fn)
        return fn

    def on_stopped(self, fn: C) -> C:
        """The lifecycle has ended; nothing follows."""
        self._callbacks.add(Emit.STOPPED.value, fn)
        return fn
