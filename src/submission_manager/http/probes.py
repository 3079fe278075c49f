"""Probes for load balancers and operators: /healthz, /readyz, /leaderz, /metrics."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Mapping

from fencehold import ConfigurationError, FactSink, FenceholdError, Leader
from fencehold.service import redact
from submission_manager.answers import Answers
from submission_manager.http.refusals import Page
from submission_manager.ports import IntakePort

TEXT = b"text/plain; charset=utf-8"
LOOK_EVERY_S = 2.0
LOOK_RARELY_S = 5.0
LOOK_LIMIT_S = 5.0
TO_SUBMIT = "submission_intents"  # the table that a submission is stored in
NO_LOGIN = ("login_refused", "no_such_database", "tls_refused")


class Readiness:
    """Whether this instance is ready, as leader or follower: not while draining, and not without the tables.

    It answers at once from memory, which `watch` updates. At first the tables are assumed to exist, because an instance
    serves only after it has found them. It stays ready if the database does not answer: otherwise every instance would
    leave the load balancer at once, and clients get 503 anyway.
    """

    def __init__(self, intake: IntakePort, facts: FactSink, answers: Answers) -> None:
        self._intake, self._facts, self.answers = intake, facts, answers
        self._missing: list[str] = []
        self._rights: list[str] = []
        self.is_draining = False

    def why_not(self) -> str | None:
        """Return why this instance is not ready; None if it is ready."""
        if self.is_draining:
            return "draining"
        return f"missing in the database: {', '.join(self._missing)}" if self._missing else None

    def lacks(self, table: str = "") -> str | None:
        """Return as text the rights that the database user lacks on this table; None if none is missing.

        Without `table`, the rights on all tables are meant.
        """
        lacking = [right for right in self._rights if table in right]
        return f"[no_permission] no {', '.join(lacking)}" if lacking else None

    async def watch(self) -> None:
        """Check the tables and rights at intervals until cancelled; less often while the database does not answer."""
        pause_s = LOOK_EVERY_S
        while True:
            await asyncio.sleep(pause_s)
            pause_s = LOOK_EVERY_S if await self._look() else min(2 * pause_s, LOOK_RARELY_S)

    async def _look(self) -> bool:
        """Check the tables and rights once. Returns whether the database answered; a refusal counts as an answer."""
        try:
            self._missing = await self._intake.missing_tables(LOOK_LIMIT_S)
            self._rights = await self._intake.rights_missing(LOOK_LIMIT_S)
        except ConfigurationError as error:
            if error.code not in NO_LOGIN:  # a refused login (a changed password) shows nothing of the tables
                self._missing = [f"tables that can be used ({error.code})"]
        except FenceholdError:
            return False
        except Exception as error:  # noqa: BLE001 - a bug of ours must not end the watch
            self._facts.fact("internal_error", error=f"{type(error).__name__}: {redact(str(error))}")
            return False
        return True


def health() -> Page:
    """Return the answer to /healthz: 200 while the process answers; checks nothing else."""
    return 200, b"ok", TEXT


def leads(leader: Leader) -> Page:
    """Return the answer to /leaderz: 200 on the leader, 503 on a follower."""
    return 503 if leader.term is None else 200, role_line(leader).encode() + b"\n", TEXT


def ready(readiness: Readiness, leader: Leader, conditions: Mapping[str, str | None]) -> Page:
    """Return the answer to /readyz: 200 if ready, else 503. Its line also names problems that leave the instance ready.

    The instance stays ready if it cannot lead, because another may lead; and if submissions fail, because they then
    fail at every instance.
    """
    why_not, silent_s = readiness.why_not(), readiness.answers.silent_s()
    line = role_line(leader)
    if silent_s is not None:
        line += f" database_silent_s={silent_s:.0f}"
    for name, words in {**conditions, "not_ready": why_not}.items():
        if words is not None:
            line += f" {name}={'_'.join(words.split())}"
    return 503 if why_not else 200, line.encode() + b"\n", TEXT


def role_line(leader: Leader) -> str:
    term = leader.term
    if term is None:
        return f"mode=follower holder_id={leader.holder_id}"
    until = term.expires_at.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return f"mode=leader holder_id={leader.holder_id} lease_expires_at={until} lease_epoch={term.epoch}"
