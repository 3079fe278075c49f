"""For load balancers and operators: alive, ready, leading, counted."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import Callable
from typing import Protocol

from starlette.types import Receive, Scope, Send

from fencehold.model.errors import ConfigurationError, FenceholdError
from submission_manager.http.refusals import send_answer
from submission_manager.ports import IntakePort

TEXT = b"text/plain; charset=utf-8"
LOOK_EVERY_S = 2.0
LOOK_LIMIT_S = 1.0
NO_LOGIN = ("login_refused", "no_such_database", "tls_refused")


class TermOfOffice(Protocol):
    @property
    def epoch(self) -> int: ...

    @property
    def expires_at(self) -> dt.datetime: ...


class Role(Protocol):
    """Who this instance is, and its term while it leads: a clock comparison, never I/O."""

    @property
    def holder_id(self) -> str: ...

    @property
    def term(self) -> TermOfOffice | None: ...


class Readiness:
    """Ready for leader and follower alike. Not while draining, and not without the tables.

    A database that cannot be reached changes nothing: every instance would leave the load balancer at once, and clients
    are told 503 anyway.
    """

    def __init__(self, intake: IntakePort) -> None:
        self._intake = intake
        self._missing: list[str] | None = None
        self._looked_s = -LOOK_EVERY_S
        self._looking = asyncio.Lock()
        self.is_draining = False

    async def why_not(self) -> str | None:
        """None: ready."""
        if self.is_draining:
            return "draining"
        async with self._looking:
            if time.monotonic() - self._looked_s >= LOOK_EVERY_S:
                await self._look()
                self._looked_s = time.monotonic()
        if self._missing is None:
            return "the database has not answered yet"
        return f"missing in the database: {', '.join(self._missing)}" if self._missing else None

    async def _look(self) -> None:
        try:
            self._missing = await self._intake.missing_tables(LOOK_LIMIT_S)
        except ConfigurationError as error:
            if error.code not in NO_LOGIN:  # a password or certificate that is being changed says nothing of the tables
                self._missing = [f"tables that can be used ({error.code})"]
        except FenceholdError:
            return


class HealthRoute:
    """The process answers; nothing else is asked."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send_answer(send, 200, b"ok", TEXT)


class ReadyRoute:
    def __init__(self, readiness: Readiness, role: Role) -> None:
        self._readiness = readiness
        self._role = role

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        why_not = await self._readiness.why_not()
        line = role_line(self._role)
        if why_not is not None:
            line += f" not_ready={why_not.replace(' ', '_')}"
        await send_answer(send, 503 if why_not else 200, line.encode() + b"\n", TEXT)


class LeaderRoute:
    """200 on the leader, 503 elsewhere."""

    def __init__(self, role: Role) -> None:
        self._role = role

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send_answer(send, 503 if self._role.term is None else 200, role_line(self._role).encode() + b"\n", TEXT)


class MetricsRoute:
    def __init__(self, exposition: Callable[[], tuple[bytes, str]]) -> None:
        self._exposition = exposition

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, content_type = self._exposition()
        await send_answer(send, 200, body, content_type.encode())


def role_line(role: Role) -> str:
    term = role.term
    if term is None:
        return f"mode=follower holder_id={role.holder_id}"
    until = term.expires_at.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return f"mode=leader holder_id={role.holder_id} lease_expires_at={until} lease_epoch={term.epoch}"
