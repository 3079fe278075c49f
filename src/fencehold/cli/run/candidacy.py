"""Acquires a lease for a command: prints the leader's facts, and limits the waiting."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from fencehold.cli import exit_codes
from fencehold.cli.screen import Screen, span
from fencehold.model.errors import FenceholdError, Unavailable
from fencehold.runtime.election.leader import Leader
from fencehold.runtime.election.term import Term

FIRST_TRY_S = 1.0  # the first try has at least this, so that it gets an answer on a busy machine too
LAST_LOOK_S = 0.05  # to receive the result of a first try that has just ended
TRY_PART = 0.8  # of the wait, at most, for one try: so that it ends early enough to report why it failed
OPEN_SLACK_S = 0.3  # after its limit, so that opening the store can raise its own error
ON_THE_WAY = "no_answer_yet"  # reported while a try is still under way: not a cause, and replaces none
_CODE = re.compile(r"\[(\w+)\] ")


class Deadline:
    """The moment at which the waiting for a lease ends (--wait); without --wait it never comes."""

    def __init__(self, wait_s: float | None) -> None:
        self._wait_s = wait_s
        self._ends_s = math.inf if wait_s is None else time.monotonic() + wait_s

    def left_s(self, least_s: float = 0.0) -> float | None:
        return None if self._wait_s is None else max(least_s, self._ends_s - time.monotonic())

    @property
    def try_limit_s(self) -> float | None:
        left_s = self.left_s()
        return None if left_s is None else max(FIRST_TRY_S, left_s * TRY_PART)


class Candidacy:
    """A sink for the leader's facts: remembers the store's last answer, and prints once what the command waits for."""

    def __init__(self, screen: Screen, name: str, *, one_try: bool = False) -> None:
        self.on_renewed: Callable[[], None] = lambda: None
        self.refused = asyncio.Event()
        self.stopping: asyncio.Task[None] | None = None  # kept here, because the loop alone would not keep it alive
        self.last_error: str | None = None
        self._is_answered = False
        self._hints: dict[str, str] = {}  # by error code
        self.held_by: str | None = None
        self._screen = screen
        self._name = name
        self._one_try = one_try
        self._said: str | None = None
        self._loop = asyncio.get_running_loop()

    def fact(self, event: str, **fields: Any) -> None:
        """Pass the fact on to the event loop. Called on any thread."""
        with suppress(RuntimeError):  # the loop is closed: nobody reads it any more
            self._loop.call_soon_threadsafe(self._heard, event, fields)

    def _heard(self, event: str, fields: dict[str, Any]) -> None:
        match event:
            case "leader_renewed":
                self.on_renewed()
                if failures := fields.get("failures"):
                    self._say(f"lease {self._name!r} is renewed again, after {failures} failures")
            case "leader_acquire_failed":
                self.last_error, self.held_by = fields.get("sql_error"), fields.get("held_by")
                self._is_answered = True
                self.refused.set()
            case "leader_renew_failed" if not fields.get("is_repeat"):
                count = f" (failure {fields['failures']})" if fields.get("not_logged") else ""
                self._say(f"lease {self._name!r} could not be renewed, trying again{count}: {fields.get('sql_error')}")
            case "store_not_replicated":
                self._say(f"warning: {fields['detail']}")
            case "store_unreachable":
                self._say_unreachable(**fields)
            case "store_answers":
                self._screen.say(f"the database answers again, after {span(fields['waited_s'])}")

    def _say_unreachable(self, code: str, error: str, hint: str, waited_s: float, **_: Any) -> None:
        """Print that the database is unreachable: at once, then once a minute, as often as these facts come."""
        if code != ON_THE_WAY:
            self.last_error, self._hints[code] = f"[{code}] {error}", hint
        elif self._one_try:
            return  # with --no-wait nothing waits for the database
        if self._one_try:
            doing = "the database is asked once (--no-wait)"
        else:
            doing = f"waiting{f' for {span(waited_s)} now' if waited_s else ''} for the database"
        self._screen.say(f"{doing}, lease {self._name!r}: [{code}] {error} {hint}".rstrip())

    def say_waiting(self) -> None:
        if self.last_error is None:
            self._say(f"waiting for lease {self._name!r}, held by {self.held_by or 'another'}")

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self._screen.say(text)

    def failed(self) -> FenceholdError:
        """Return the error for a lease that was not acquired.

        Its exit code is 69 if the database did not grant the lease, 75 if another holder has it.
        """
        if self.last_error is not None or not self._is_answered:
            why, hint = self._cause()
            return Unavailable(f"Lease {self._name!r} was not acquired: {why}", hint=hint)
        return exit_codes.Refused(
            f"Lease {self._name!r} was not acquired: {self.held_by or 'another'} holds it.",
            hint="Wait longer (--wait), or see `fencehold show` for who holds it and until when.",
            code="not_acquired",
            exit_code=exit_codes.NOT_ACQUIRED,
        )

    def _cause(self) -> tuple[str, str]:
        """Return why the database did not grant the lease, and the hint of the database's error."""
        why = self.last_error or "the database gave no answer in this time."
        code = _CODE.match(why)
        hint = self._hints.get(code[1], "") if code else ""
        return why.removesuffix(hint).rstrip() if hint else why, hint or "Check that the database runs and answers."

    @asynccontextmanager
    async def opening(self, deadline: Deadline) -> AsyncIterator[None]:
        """Limit the opening of the store, inside the block, to the deadline, even if one try would take longer.

        Raises the error of `failed` at the deadline.
        """
        left_s = deadline.left_s(FIRST_TRY_S)
        try:
            async with asyncio.timeout(None if left_s is None else left_s + OPEN_SLACK_S):
                yield
        except TimeoutError:
            raise self.failed() from None


async def elected(leader: Leader, candidacy: Candidacy, deadline: Deadline, *, one_try: bool) -> Term:
    """Wait until the lease is granted, and return its term.

    Raises the error of `Candidacy.failed` if the lease was not granted in time.
    """
    try:
        async with asyncio.timeout(deadline.left_s(FIRST_TRY_S)):
            await leader.start()
    except TimeoutError:
        raise candidacy.failed() from None
    granted = asyncio.ensure_future(_first_term(leader))
    refused = asyncio.ensure_future(candidacy.refused.wait())
    try:
        async with asyncio.timeout(deadline.left_s(LAST_LOOK_S)):
            await asyncio.wait([granted, refused], return_when=asyncio.FIRST_COMPLETED)
            if not granted.done() and not one_try:
                candidacy.say_waiting()
                await asyncio.wait([granted])
    except TimeoutError:
        pass
    finally:
        refused.cancel()
        if not granted.done():
            granted.cancel()
    if granted.done() and not granted.cancelled():
        return granted.result()
    raise candidacy.failed()


async def _first_term(leader: Leader) -> Term:
    async for term in leader.terms():
        return term
    raise Unavailable("The leader stopped before it was elected.", code="stopped")
