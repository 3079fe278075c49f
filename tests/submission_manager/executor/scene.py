"""One database in memory, its candidates and a gateway that obeys, on virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import prometheus_client

from fencehold import Leader, LockState, Term
from fencehold.backends.memory.backend import MemoryBackend, Shelf
from fencehold.model.election.settings import leader_settings
from fencehold.runtime.election.leader import Candidates
from submission_manager.context import ServiceContext
from submission_manager.executor.backlog import BacklogWatch
from submission_manager.executor.executor import Executor, ExecutorSettings
from submission_manager.executor.webhooks import WebhookDelivery, WebhookSettings
from submission_manager.fitness import Fitness
from submission_manager.leadership.leadership import Leadership
from submission_manager.leadership.reading import LeadershipSettings, ScheduleReader
from submission_manager.metrics import Metrics
from submission_manager.model.contracts import Contract, GatewayType, Policy, Webhook
from submission_manager.model.intents import Backlog, Status
from submission_manager.model.outcomes import Answer, Outcome
from submission_manager.ports import Over, Started
from tests.fencehold.runtime.election.election_parts import opened_context
from tests.fencehold.testing.simulation.on_virtual_time import LoopClock
from tests.submission_manager.executor.table import CONTRACT, Table

T = TypeVar("T")

LEASE_S = 9.0
ACCEPTED = Outcome(Answer.ACCEPTED)
TROUBLE = Outcome(Answer.ERROR, error="500")


class Facts:
    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []

    def fact(self, event: str, **fields: Any) -> None:
        self.told.append((event, fields))

    def names(self) -> list[str]:
        return [event for event, _ in self.told]


class Counts(Metrics):
    def __init__(self) -> None:
        super().__init__()
        self.of: Counter[str] = Counter()
        self.attempts_s: list[float | None] = []
        self.calls_s: list[float] = []
        self.backlogs: list[Backlog | None] = []
        self.inflight_max = 0
        self.inflight.set = self._note_inflight  # type: ignore[method-assign]

    def _note_inflight(self, value: float) -> None:
        self.inflight_max = max(self.inflight_max, int(value))

    def attempt(self, outcome_status: str, seconds: float | None) -> None:
        self.of[f"attempt {outcome_status}"] += 1
        self.attempts_s.append(seconds)

    def gateway_call(self, gateway: str, outcome: str, seconds: float) -> None:
        self.of[f"{gateway} {outcome}"] += 1
        self.calls_s.append(seconds)

    def backlog(self, found: Backlog | None) -> None:
        self.backlogs.append(found)

    def ended(self, target: str, status: str, exhausted_reason: str | None, seconds_since_created: float) -> None:
        self.of[f"terminal {status}"] += 1
        if exhausted_reason is not None:
            self.of[f"exhausted {exhausted_reason}"] += 1

    def accepted_late(self, target: str) -> None:
        self.of[f"late {target}"] += 1

    def refreshed(self, rows: int, seconds: float, lag_s: float) -> None:
        self.of["refreshes"] += 1

    def rebuilt(self, intents: int, seconds: float) -> None:
        self.of["rebuilds"] += 1


def counted(metric: prometheus_client.Counter) -> float:
    return float(metric._value.get())


class Gateway:
    """Answers at once with `answer`, unless a gate stands before the URL or the intent."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.ended: list[str] = []
        self.answer = ACCEPTED
        self.answers: dict[str, Outcome] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.called = asyncio.Event()
        self.takes_s: dict[str, float] = {}  # by URL

    async def submit(self, started: Started, limit_s: float) -> Outcome:
        self.calls.append(started.key)
        self.called.set()
        await asyncio.sleep(self.takes_s.get(started.contract.gateway_url, 0))
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

    async def send(self, over: Over, limit_s: float) -> str | None:
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
        context = await opened_context(MemoryBackend(self.shelf), facts)
        on_error = "retry" if options.pop("retry_on_error", False) else "drop"
        leader = Leader(
            "one", holder_id, leader_settings(lease=LEASE_S, on_error=on_error), context, candidates=Candidates()
        )
        service = ServiceContext(LoopClock(), counts, facts)
        webhooks = WebhookDelivery(self.table, receiver, options.pop("webhooks", WebhookSettings()), service)
        settings = options.pop("executor", ExecutorSettings())
        executor = Executor(self.table, gateway, webhooks, settings, service)
        chosen = LeadershipSettings(drops_on_error=on_error == "drop", **options)
        reader = ScheduleReader(self.table, Fitness(self.table, "one"), chosen, service)
        backlog = BacklogWatch(self.table, service)
        leadership = Leadership(leader, reader, executor, webhooks, backlog, chosen, service)
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


def within(seconds: int, url: str = "http://sms", target: str = "sms.urgent") -> Contract:
    return Contract(target, GatewayType.SMS, url, Policy.DEADLINE, ("invalid_recipient",), seconds)


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
