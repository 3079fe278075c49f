"""A store in memory and the application on a real port in front of it."""

import asyncio
import datetime as dt
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import httpx

from fencehold import Leader
from fencehold.model.errors import FenceholdError
from submission_manager.answers import Answers
from submission_manager.http.app import App
from submission_manager.http.parts import Parts
from submission_manager.http.server import Listening, Places
from submission_manager.metrics import Metrics
from submission_manager.model.contracts import Queueing
from submission_manager.model.intents import Attempt, Intent, NewIntent, Status
from submission_manager.ports import Submission, Submitted
from submission_manager.registry.registry import parse
from submission_manager.settings import Settings, settings

REGISTRY = """
# two targets
{"targets": [
  {"submissionTarget": "sms.realtime", "gatewayType": "sms", "gatewayUrl": "http://gateway.test", "policy": "deadline",
   "maxAcceptanceSeconds": 30, "terminalOutcomes": ["invalid_request"]},
  {"submissionTarget": "push.realtime", "gatewayType": "push", "gatewayUrl": "http://gateway.test",
   "policy": "one_shot", "terminalOutcomes": ["unregistered_token"]}
]}
"""


@dataclass
class FakeIntake:
    """Keeps what the port promises; `trouble` is raised instead of any answer."""

    rows: dict[str, tuple[Intent, bytes | None]] = field(default_factory=dict)
    attempts: dict[str, list[Attempt]] = field(default_factory=dict)
    trouble: FenceholdError | Exception | None = None
    missing: list[str] = field(default_factory=list)
    rights: list[str] = field(default_factory=list)
    looks: list[list[str]] = field(default_factory=list)
    table_looks: int = 0
    hangs: bool = False  # a look at the tables is never answered

    async def submit(self, new: NewIntent, limit_s: float) -> Submitted:
        self._fail()
        if new.intent_id in self.rows:
            known, payload = self.rows[new.intent_id]
            same = (known.submission_target, payload) == (new.contract.submission_target, new.payload)
            return Submitted(Submission.KNOWN if same else Submission.CONFLICT, known)
        now = dt.datetime.now(dt.UTC)
        intent = Intent(new.intent_id, new.contract.submission_target, now, Status.PENDING, 0)
        self.rows[new.intent_id] = (intent, new.payload)
        return Submitted(Submission.CREATED, intent)

    async def repeated(self, intent_id: str, target: str, payload: bytes | None, limit_s: float) -> Intent | None:
        self._fail()
        known, stored = self.rows.get(intent_id, (None, None))
        return known if known and (known.submission_target, stored) == (target, payload) else None

    async def read(self, intent_id: str, limit_s: float) -> Intent | None:
        self._fail()
        return self.rows[intent_id][0] if intent_id in self.rows else None

    async def history(self, intent_id: str, limit_s: float) -> tuple[Intent, list[Attempt]] | None:
        intent = await self.read(intent_id, limit_s)
        return None if intent is None else (intent, self.attempts.get(intent_id, []))

    async def moved(self, intent_ids: Sequence[str], limit_s: float) -> list[str]:
        self.looks.append(list(intent_ids))
        self._fail()
        found = [self.rows[one][0] for one in intent_ids if one in self.rows]
        return [one.intent_id for one in found if one.status is not Status.PENDING or one.attempt_count]

    async def pending_counts(self, limit_s: float) -> Mapping[str, int]:
        self._fail()
        return Counter(intent.submission_target for intent, _ in self.rows.values() if intent.status is Status.PENDING)

    async def missing_tables(self, limit_s: float) -> list[str]:
        self.table_looks += 1
        if self.hangs:
            await asyncio.Event().wait()
        self._fail()
        return self.missing

    async def rights_missing(self, limit_s: float) -> list[str]:
        self._fail()
        return self.rights

    async def owner(self, lease_name: str, limit_s: float) -> str:
        return lease_name

    def change(self, intent_id: str, **changes: Any) -> None:
        intent, payload = self.rows[intent_id]
        self.rows[intent_id] = (replace(intent, **changes), payload)

    def _fail(self) -> None:
        if self.trouble is not None:
            raise self.trouble


class Heard:
    """As the store's own intake does, records of every call whether the database answered."""

    def __init__(self, intake: FakeIntake, answers: Answers) -> None:
        self._intake, self._answers = intake, answers

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self._answers.of(getattr(self._intake, name)(*args))


@dataclass
class FakeTerm:
    epoch: int = 7
    expires_at: dt.datetime = dt.datetime(2026, 2, 2, 12, 0, 10, tzinfo=dt.UTC)


@dataclass
class FakeRole:
    holder_id: str = "sm-01"
    term: FakeTerm | None = None


@dataclass
class Facts:
    told: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def fact(self, event: str, **fields: Any) -> None:
        self.told.append((event, fields))


@dataclass
class Running:
    intake: FakeIntake
    role: FakeRole
    metrics: Metrics
    facts: Facts
    app: App
    listening: Listening
    client: httpx.AsyncClient

    async def submit(self, intent_id: str = "a", query: str = "", **fields: Any) -> httpx.Response:
        body = {"intentId": intent_id, "submissionTarget": "sms.realtime", **fields}
        return await self.client.post(f"/v1/intents{query}", json=body)


async def until(happened: Callable[[], bool]) -> None:
    while True:
        if happened():
            return
        await asyncio.sleep(0.005)


def settings_for(**given: Any) -> Settings:
    return settings({"database": "sqlite:///unused.db", "registry": "unused", **given})


@asynccontextmanager
async def running(
    *,
    hangs: bool = False,
    backlogs_max: Mapping[str, int] | None = None,
    keeps_from_leading: Callable[[], str | None] = lambda: None,
    **given: Any,
) -> AsyncIterator[Running]:
    intake, role, metrics, facts = FakeIntake(hangs=hangs), FakeRole(), Metrics(), Facts()
    chosen = settings_for(**given)
    answers = Answers()
    queueing = {target: Queueing(max_backlog=most) for target, most in (backlogs_max or {}).items()}
    registry = replace(parse(REGISTRY), queueing=queueing)
    parts = Parts(
        Heard(intake, answers), registry, cast("Leader", role), metrics, facts, chosen,
        keeps_from_leading=keeps_from_leading, answers=answers,
    )  # fmt: skip
    app = App(parts)
    listening = Listening(
        app, "127.0.0.1", 0, request_timeout_s=chosen.request_timeout_s, drain_timeout_s=chosen.drain_timeout_s,
        places=Places(chosen.max_connections or 1000, facts, metrics),
    )  # fmt: skip
    watching = asyncio.create_task(app.readiness.watch())
    await listening.start()
    url = f"http://127.0.0.1:{listening.port}"
    try:
        async with httpx.AsyncClient(base_url=url, trust_env=False, verify=False, timeout=40) as client:
            yield Running(intake, role, metrics, facts, app, listening, client)
    finally:
        watching.cancel()
        await app.drain()
        await listening.stop()
        app.close()
