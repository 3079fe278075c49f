"""One database in memory, its candidates and a gateway that obeys, on virtual time."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from fencehold import Leader, LockState, Term
from fencehold.backends.memory.backend import MemoryBackend, Shelf
from fencehold.model.settings import leader_settings
from fencehold.runtime.engine import Engine
from submission_manager.executor import Executor, ExecutorSettings
from submission_manager.executor_backlog import BacklogWatch
from submission_manager.executor_metrics import NoMetrics
from submission_manager.executor_webhooks import WebhookDesk, WebhookSettings
from submission_manager.leadership import Leadership, LeadershipSettings
from submission_manager.model.backlog import Backlog
from submission_manager.model.contracts import Contract, GatewayType, Policy, Webhook
from submission_manager.model.intents import Attempt, Intent, Status, WebhookStatus
from submission_manager.model.outcomes import OUTCOME_UNKNOWN, Answer, Case, Outcome, Verdict, judge
from submission_manager.ports import Cursor, Due, NotNow, Over, Page, Recorded, Started
from tests.unit.on_virtual_time import LoopClock, SameLoopHost

T = TypeVar("T")

LEASE_S = 9.0
CONTRACT = Contract("sms.test", GatewayType.SMS, "http://sms", Policy.MAX_ATTEMPTS, ("invalid_recipient",), None, 3)
ACCEPTED = Outcome(Answer.ACCEPTED)
TROUBLE = Outcome(Answer.ERROR, error="500")


class Facts:
    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []

    def fact(self, event: str, **fields: Any) -> None:
        self.told.append((event, fields))

    def names(self) -> list[str]:
        return [event for event, _ in self.told]


class Counts(NoMetrics):
    def __init__(self) -> None:
        self.of: Counter[str] = Counter()
        self.attempts_s: list[float | None] = []
        self.calls_s: list[float] = []
        self.backlogs: list[Backlog | None] = []
        self.inflight_max = 0

    def inflight(self, attempts: int) -> None:
        self.inflight_max = max(self.inflight_max, attempts)

    def attempt(self, outcome_status: str, seconds: float | None) -> None:
        self.of[f"attempt {outcome_status}"] += 1
        self.attempts_s.append(seconds)

    def gateway_call(self, gateway: str, outcome: str, seconds: float) -> None:
        self.of[f"{gateway} {outcome}"] += 1
        self.calls_s.append(seconds)

    def backlog(self, found: Backlog | None) -> None:
        self.backlogs.append(found)

    def retry_scheduled(self) -> None:
        self.of["retry"] += 1

    def terminal(self, status: str, seconds_since_created: float) -> None:
        self.of[f"terminal {status}"] += 1

    def exhausted(self, reason: str) -> None:
        self.of[f"exhausted {reason}"] += 1

    def fenced_out(self, write: str) -> None:
        self.of[f"fenced out {write}"] += 1

    def refreshed(self, rows: int, seconds: float, lag_s: float) -> None:
        self.of["refreshes"] += 1

    def rebuilt(self, intents: int, seconds: float) -> None:
        self.of["rebuilds"] += 1


@dataclass
class Row:
    intent_id: str
    contract: Contract
    created_at: dt.datetime
    due_at: dt.datetime | None
    modified: int
    status: Status = Status.PENDING
    attempts: list[Attempt] = field(default_factory=list)
    exhausted_reason: str | None = None
    completed_at: dt.datetime | None = None
    webhook_status: WebhookStatus | None = None
    marker_epoch: int | None = None


class Table:
    """submission_intents and submission_attempts, as the schedule, the executor and the sweep see them."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self.rows: dict[str, Row] = {}
        self.writes = 0
        self.starts: list[tuple[str, int]] = []  # intent, epoch
        self.failing: dict[str, Exception] = {}
        self.failing_once: dict[str, Exception] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.reached: dict[str, asyncio.Event] = {}
        self.hints: list[Callable[[], None]] = []
        self.page_rows_seen: list[int] = []
        self.refreshes = 0

    def submit(self, intent_id: str, contract: Contract = CONTRACT) -> None:
        now = self._shelf.now()
        owed = WebhookStatus.PENDING if contract.webhook else None
        self.rows[intent_id] = Row(intent_id, contract, now, now, self._stamp(), webhook_status=owed)

    def _stamp(self) -> int:
        self.writes += 1
        return self.writes

    async def _pass(self, verb: str) -> None:
        """Where a test may hold a verb up, or break it."""
        if verb in self.reached:
            self.reached[verb].set()
        if verb in self.gates:
            await self.gates[verb].wait()
        if verb in self.failing_once:
            raise self.failing_once.pop(verb)
        if verb in self.failing:
            raise self.failing[verb]

    # --- SchedulePort ---

    async def rebuild(self, page_rows: int, limit_s: float) -> AsyncIterator[Page]:
        guard, rows = self.writes, sorted(self.rows.values(), key=lambda row: row.modified)
        pending = [row for row in rows if row.status is Status.PENDING]
        for at in range(0, max(1, len(pending)), page_rows):
            await self._pass("rebuild")
            yield self._page(pending[at : at + page_rows], guard)

    async def refresh(self, cursor: Cursor, page_rows: int, limit_s: float) -> Page:
        self.refreshes += 1
        await self._pass("refresh")
        rows = [row for row in sorted(self.rows.values(), key=lambda r: r.modified) if row.modified > cursor.guard]
        rows = rows[:page_rows]
        self.page_rows_seen.append(len(rows))
        return self._page(rows, rows[-1].modified if rows else cursor.guard)

    def _page(self, rows: list[Row], guard: int) -> Page:
        now = self._shelf.now()
        dues = [Due(r.intent_id, r.due_at, now, r.contract.gateway_url) for r in rows]
        return Page(dues, Cursor(now, rows[-1].intent_id if rows else "", guard), now)

    def on_submitted(self, hint: Callable[[], None]) -> None:
        self.hints.append(hint)

    async def listen(self, limit_s: float) -> bool:
        return False

    # --- AttemptPort ---

    async def start(self, term: Term, intent_id: str, retry_delay_s: float) -> Started | NotNow:
        await self._pass("start")
        await self._pass(f"start {intent_id}")
        async with term.transaction():
            return self._started(term, self.rows[intent_id], retry_delay_s)

    def _started(self, term: Term, row: Row, retry_delay_s: float) -> Started | NotNow:
        now = self._shelf.now()
        if row.status is not Status.PENDING:
            return NotNow(row.status)
        if row.marker_epoch is not None and row.marker_epoch != term.epoch:
            unknown = Outcome(Answer.ERROR, error=OUTCOME_UNKNOWN)
            self._append(row, unknown, retry_delay_s)
            return NotNow(row.status, row.due_at, self._over(row), unknown_outcome=True)
        assert row.due_at is not None
        if row.due_at > now:
            return NotNow(row.status, row.due_at)
        assert row.marker_epoch is None, "two attempts of one intent at once"
        row.marker_epoch, row.modified = term.epoch, self._stamp()
        self.starts.append((row.intent_id, term.epoch))
        return Started(row.intent_id, len(row.attempts) + 1, row.contract, b"{}", row.created_at, now)

    async def record(self, term: Term, started: Started, outcome: Outcome, retry_delay_s: float) -> Recorded:
        await self._pass("record")
        async with term.transaction():
            row = self.rows[started.intent_id]
            assert row.marker_epoch == term.epoch
            self._append(row, outcome, retry_delay_s)
            return Recorded(row.status, self._shelf.now(), row.due_at, self._over(row))

    def _append(self, row: Row, outcome: Outcome, retry_delay_s: float) -> None:
        now = self._shelf.now()
        row.attempts.append(Attempt(len(row.attempts) + 1, now, now, outcome.answer.value, None, outcome.error))
        verdict = judge(Case(row.contract, outcome, len(row.attempts), row.created_at, now, retry_delay_s))
        self._apply(row, verdict, now)

    def _apply(self, row: Row, verdict: Verdict, now: dt.datetime) -> None:
        row.status, row.due_at, row.marker_epoch = verdict.status, verdict.retry_at, None
        row.exhausted_reason, row.modified = verdict.exhausted_reason, self._stamp()
        row.completed_at = None if verdict.status is Status.PENDING else now

    def _over(self, row: Row) -> Over | None:
        if row.status is Status.PENDING:
            return None
        return Over(
            Intent(
                row.intent_id, "sms.test", row.created_at, row.status, len(row.attempts), row.completed_at,
                exhausted_reason=row.exhausted_reason,
            ),
            row.contract.webhook,
        )  # fmt: skip

    async def owed_webhooks(self, limit: int, limit_s: float) -> list[Over]:
        await self._pass("owed_webhooks")
        ended = [r for r in self.rows.values() if r.webhook_status is WebhookStatus.PENDING]
        return [over for r in ended if (over := self._over(r)) is not None][:limit]

    async def backlog(self, late_s: int, rows_max: int, limit_s: float) -> Backlog:
        await self._pass("backlog")
        now = self._shelf.now()
        ages = [(now - row.due_at).total_seconds() for row in self.rows.values() if row.due_at is not None]
        return Backlog(sum(age >= late_s for age in ages), max([0.0, *ages]), 0)

    async def record_webhook(self, term: Term, intent_id: str, status: WebhookStatus, error: str | None) -> None:
        await self._pass("record_webhook")
        async with term.transaction():
            self.rows[intent_id].webhook_status = status


class Gateway:
    """Answers at once with `answer`, unless a gate stands before the URL or the intent."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.ended: list[str] = []
        self.answer = ACCEPTED
        self.answers: dict[str, Outcome] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.called = asyncio.Event()

    async def submit(self, started: Started, limit_s: float) -> Outcome:
        self.calls.append(started.key)
        self.called.set()
        for gate in (self.gates.get(started.contract.gateway_url), self.gates.get(started.intent_id)):
            if gate is not None:
                try:
                    async with asyncio.timeout(limit_s):
                        await gate.wait()
                except TimeoutError:
                    return Outcome(Answer.ERROR, error="no answer")
        self.ended.append(started.key)
        return self.answers.get(started.intent_id, self.answer)


class Receiver:
    def __init__(self) -> None:
        self.told: list[str] = []
        self.gate: asyncio.Event | None = None
        self.heard = asyncio.Event()
        self.error: str | None = None

    async def tell(self, over: Over, limit_s: float) -> str | None:
        self.told.append(over.intent.intent_id)
        self.heard.set()
        if self.gate is not None:
            await self.gate.wait()
        return self.error


async def until(holds: Callable[[], bool], limit_s: float = 100.0) -> None:
    """Virtual time: looking often costs nothing."""
    async with asyncio.timeout(limit_s):
        while not holds():  # noqa: ASYNC110 - whatever a test may ask, without an event for each
            await asyncio.sleep(0.01)


@dataclass
class Instance:
    leader: Leader
    leadership: Leadership
    executor: Executor
    gateway: Gateway
    receiver: Receiver
    counts: Counts
    facts: Facts
    run: asyncio.Task[None] | None = None

    async def start(self) -> Instance:
        self.run = asyncio.create_task(self.leadership.run())
        await until(lambda: self.leader.state is not LockState.STOPPED)
        return self

    async def leads(self) -> Term:
        assert await self.leader.wait_for_leadership(60)
        term = self.leader.term
        assert term is not None
        return term

    def die(self) -> None:
        """As a process that is gone: nothing is given back."""
        assert self.run is not None
        self.run.cancel()


class Scene:
    def __init__(self) -> None:
        self.shelf = Shelf(now_s=asyncio.get_running_loop().time)
        self.table = Table(self.shelf)

    async def instance(self, holder_id: str = "a", **options: Any) -> Instance:
        facts, counts, gateway, receiver = Facts(), Counts(), Gateway(), Receiver()
        engine = Engine(MemoryBackend(self.shelf), LoopClock(), facts)
        await engine.open(1.0)
        on_error = "retry" if options.pop("retry_on_error", False) else "drop"
        leader = Leader(
            "one", holder_id, leader_settings(lease=LEASE_S, on_error=on_error), retry_strategy=None,
            engine=lambda: (engine, SameLoopHost()), clock=LoopClock(), facts=facts,
            enrol=lambda _: None, done=lambda: None,
        )  # fmt: skip
        parts: dict[str, Any] = {
            "writes": asyncio.Semaphore(4), "clock": LoopClock(), "metrics": counts, "facts": facts,
        }  # fmt: skip
        webhooks = WebhookDesk(self.table, receiver, options.pop("webhooks", WebhookSettings()), **parts)
        settings = options.pop("executor", ExecutorSettings())
        executor = Executor(self.table, gateway, webhooks, settings, **parts)
        del parts["writes"]
        leadership = Leadership(
            leader, self.table, executor, webhooks, BacklogWatch(self.table, counts, facts),
            LeadershipSettings(drops_on_error=on_error == "drop", **options), **parts,
        )  # fmt: skip
        return Instance(leader, leadership, executor, gateway, receiver, counts, facts)

    async def until(self, holds: Callable[[], bool], limit_s: float = 100.0) -> None:
        await until(holds, limit_s)

    def are_over(self, *intent_ids: str) -> bool:
        return all(self.table.rows[one].status is not Status.PENDING for one in intent_ids)


def with_webhook(contract: Contract = CONTRACT) -> Contract:
    return Contract(
        contract.submission_target, contract.gateway_type, contract.gateway_url, contract.policy,
        contract.terminal_outcomes, contract.max_acceptance_seconds, contract.max_attempts, Webhook("http://hook"),
    )  # fmt: skip


def at_gateway(url: str) -> Contract:
    return Contract("sms.test", GatewayType.SMS, url, Policy.MAX_ATTEMPTS, ("invalid_recipient",), None, 3)


def taken_over(scene: Scene) -> None:
    """Another took the lease, and this leader has not heard of it."""
    row = scene.shelf.rows["one"]
    scene.shelf.rows["one"] = replace(row, holder_id="other", epoch=row.epoch + 1)


async def calling(scene: Scene, *, webhook: bool = False) -> Instance:
    """A leader whose one attempt is at the gateway, which does not answer yet."""
    scene.table.submit("x", with_webhook() if webhook else at_gateway("http://sms"))
    one = await scene.instance()
    one.gateway.gates["x"] = asyncio.Event()
    await one.start()
    await one.gateway.called.wait()
    return one
