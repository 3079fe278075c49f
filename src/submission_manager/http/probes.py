"""For load balancers and operators: alive, ready, leading, counted."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Mapping
from typing import Protocol

from starlette.types import Receive, Scope, Send

from fencehold.model.errors import ConfigurationError, FenceholdError, redact
from fencehold.ports.facts import FactSink
from submission_manager.answers import Answers
from submission_manager.http.refusals import send_answer
from submission_manager.ports import IntakePort

TEXT = b"text/plain; charset=utf-8"
LOOK_EVERY_S = 2.0
LOOK_RARELY_S = 5.0
LOOK_LIMIT_S = 5.0
TO_SUBMIT = "submission_intents"  # the table that a submission is stored in
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

    Asked, it answers from memory at once; `watch` keeps the memory. It begins with the tables there: an instance
    serves only after it has seen them. A database that does not answer changes nothing: every instance would leave the
    load balancer at once, and clients are told 503 anyway.
    """

    def __init__(self, intake: IntakePort, facts: FactSink, answers: Answers) -> None:
        self._intake, self._facts, self._answers = intake, facts, answers
        self._missing: list[str] = []
        self._rights: list[str] = []
        self.is_draining = False

    def why_not(self) -> str | None:
        """None: ready."""
        if self.is_draining:
            return "draining"
        return f"missing in the database: {', '.join(self._missing)}" if self._missing else None

    def silent_s(self) -> float | None:
        """How long the database has answered nobody in this process; None: it answered the last time it was asked."""
        return self._answers.silent_s()

    def lacks(self, table: str = "") -> str | None:
        """The rights that this user does not have, on this table or any."""
        lacking = [right for right in self._rights if table in right]
        return f"[no_permission] no {', '.join(lacking)}" if lacking else None

    async def watch(self) -> None:
        """Look again and again, until cancelled; less and less often while nothing answers."""
        pause_s = LOOK_EVERY_S
        while True:
            await asyncio.sleep(pause_s)
            pause_s = LOOK_EVERY_S if await self._look() else min(2 * pause_s, LOOK_RARELY_S)

    async def _look(self) -> bool:
        """True: the database answered, if with a refusal."""
        try:
            self._missing = await self._intake.missing_tables(LOOK_LIMIT_S)
            self._rights = await self._intake.rights_missing(LOOK_LIMIT_S)
        except ConfigurationError as error:
            if error.code not in NO_LOGIN:  # a password or certificate that is being changed says nothing of the tables
                self._missing = [f"tables that can be used ({error.code})"]
        except FenceholdError:
            return False
        except Exception as error:  # noqa: BLE001 - a fault of ours must not end the watch
            self._facts.fact("internal_error", error=f"{type(error).__name__}: {redact(str(error))}")
            return False
        return True


class HealthRoute:
    """The process answers; nothing else is asked."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send_answer(send, 200, b"ok", TEXT)


class ReadyRoute:
    """What keeps an instance from leading, or clients from submitting, is named, and it stays ready.

    It takes requests, another may lead, and where submissions fail they fail at every instance.
    """

    def __init__(self, readiness: Readiness, role: Role, conditions: Callable[[], Mapping[str, str | None]]) -> None:
        self._readiness = readiness
        self._role = role
        self._conditions = conditions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        why_not, silent_s = self._readiness.why_not(), self._readiness.silent_s()
        line = role_line(self._role)
        if silent_s is not None:
            line += f" database_silent_s={silent_s:.0f}"
        for name, words in self._conditions().items():
            if words is not None:
                line += f" {name}={_one_word(words)}"
        if why_not is not None:
            line += f" not_ready={_one_word(why_not)}"
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


def _one_word(text: str) -> str:
    return "_".join(text.split())


def role_line(role: Role) -> str:
    term = role.term
    if term is None:
        return f"mode=follower holder_id={role.holder_id}"
    until = term.expires_at.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return f"mode=leader holder_id={role.holder_id} lease_expires_at={until} lease_epoch={term.epoch}"
