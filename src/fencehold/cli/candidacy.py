"""Seeking a lease on behalf of a command: what the leader tells, and how long to wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from fencehold.cli import exit_codes
from fencehold.cli.screen import Screen, span
from fencehold.model.errors import FenceholdError, Unavailable
from fencehold.runtime.leader import Leader
from fencehold.runtime.term import Term


class Candidacy:
    """A sink for the leader's facts: remembers the last answer, and tells a person once what is being waited for."""

    def __init__(self, screen: Screen, name: str, *, one_try: bool = False) -> None:
        self.on_renewed: Callable[[], None] = lambda: None
        self.refused = asyncio.Event()
        self.stopping: asyncio.Task[None] | None = None  # kept here, because the loop alone would not keep it alive
        self.last_error: str | None = None
        self.held_by: str | None = None
        self._screen = screen
        self._name = name
        self._one_try = one_try
        self._said: str | None = None
        self._loop = asyncio.get_running_loop()

    def fact(self, event: str, **fields: Any) -> None:
        """On any thread."""
        with suppress(RuntimeError):  # the loop is closed: nobody is left to hear it
            self._loop.call_soon_threadsafe(self._heard, event, fields)

    def _heard(self, event: str, fields: dict[str, Any]) -> None:
        match event:
            case "leader_renewed":
                self.on_renewed()
            case "leader_acquire_failed":
                self.last_error, self.held_by = fields.get("sql_error"), fields.get("held_by")
                self.refused.set()
            case "leader_renew_failed":
                self._say(f"lease {self._name!r} could not be renewed, trying again: {fields.get('sql_error')}")
            case "store_unreachable":
                self._say_unreachable(**fields)
            case "store_answers":
                self._screen.say(f"the database answers again, after {span(fields['waited_s'])}")

    def _say_unreachable(self, code: str, error: str, hint: str, waited_s: float, **_: Any) -> None:
        """At once, and then once a minute: the leader and the store tell no more often."""
        self.last_error = f"[{code}] {error}"
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
        """Why there is no lease: the database (69) or another holder (75)."""
        if self.last_error is not None:
            return Unavailable(
                f"Lease {self._name!r} was not acquired: {self.last_error}",
                hint="Check that the database runs and answers.",
            )
        return exit_codes.Refused(
            f"Lease {self._name!r} was not acquired: {self.held_by or 'another'} holds it.",
            hint="Wait longer (--wait), or see `fencehold show` for who holds it and until when.",
            code="not_acquired",
            exit_code=exit_codes.NOT_ACQUIRED,
        )


async def elected(leader: Leader, candidacy: Candidacy, wait_s: float | None, *, one_try: bool) -> Term:
    """The term of a granted lease; raises what `failed` says when none was granted in time."""
    granted = asyncio.ensure_future(_first_term(leader))
    refused = asyncio.ensure_future(candidacy.refused.wait())
    try:
        async with asyncio.timeout(wait_s):
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
