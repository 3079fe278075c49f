"""One instance: builds its store, its leadership and its HTTP server, and starts and stops them in order."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, aclosing
from typing import Self

import fencehold
from fencehold import ConfigurationError, FactSink, FanOut, FenceholdError
from fencehold.service import BootClock, label, redact, until_answered
from submission_manager.answers import Answers
from submission_manager.context import ServiceContext
from submission_manager.executor.backlog import BacklogWatch
from submission_manager.executor.executor import Executor, ExecutorSettings
from submission_manager.executor.gateways import gateway_name
from submission_manager.executor.webhooks import WebhookDelivery, WebhookSettings
from submission_manager.fitness import Fitness, tables_missing
from submission_manager.gateway_client import GatewayClient
from submission_manager.http.app import App
from submission_manager.http.parts import Parts
from submission_manager.http.server import Listening, Places, connections_max, files_max
from submission_manager.leadership.leadership import Leadership
from submission_manager.leadership.reading import LeadershipSettings, ScheduleReader
from submission_manager.lease_facts import FewerLines, LeaseTrouble
from submission_manager.metrics import Metrics
from submission_manager.outgoing import Outgoing
from submission_manager.own_words import OwnWords
from submission_manager.ports import IntakePort
from submission_manager.registry.registry import Registry
from submission_manager.settings import Settings
from submission_manager.stores.opening import LEASE_TABLE, Store, open_store
from submission_manager.webhook import WebhookClient

READY_LIMIT_S = 10.0
STEP_DOWN_LIMIT_S = 5.0
CONCURRENCY_TOTAL_MIN = 128


class Instance:
    """One instance of the service; use it with `async with`: it serves inside the block.

    On leaving the block it reports not-ready, drains, stops executing, releases the lease, and closes the store.
    """

    def __init__(
        self, settings: Settings, registry: Registry, facts: FactSink, *, metrics: Metrics | None = None,
        creates_tables: bool = True,
    ) -> None:  # fmt: skip
        self.settings = settings
        self.metrics = metrics or Metrics()
        self._registry = registry
        self.metrics.open_gateways(gateway_name(one.gateway_url) for one in registry.contracts.values())
        self.metrics.open_targets(registry.contracts)
        self._clock = BootClock()
        self._lease_trouble, self._answers = LeaseTrouble(), Answers(self._clock.now_s)
        self._facts = FanOut(OwnWords(FanOut(FewerLines(facts), self._lease_trouble)), self.metrics, self._answers)
        self._creates_tables = creates_tables
        self._stack = AsyncExitStack()
        self._is_stopping = asyncio.Event()
        self._running: Leadership | None = None
        self._leading: asyncio.Task[None] | None = None
        self.attempts_cut = 0  # attempts cut off, or whose outcome is not recorded; set once it has stopped
        self._drains_since_s: float | None = None
        self._has_failed = False  # the start failed: its error is reported, and nothing had begun that could be stopped
        self.app: App
        self.listening: Listening
        self.leader: fencehold.Leader

    @property
    def url(self) -> str:
        host = self.settings.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.listening.port}"

    async def __aenter__(self) -> Self:
        self._stack.callback(self._log_stopped)  # pushed first, so it runs last: no log line comes after it
        try:
            await self._start()
        except BaseException as error:
            self._has_failed = isinstance(error, Exception)
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    def ask_to_stop(self) -> None:
        self._is_stopping.set()

    def log_cut(self) -> None:
        """Log which work is cut off if the process ends now. Safe to call from any thread."""
        if self._running is not None:
            self._running.log_cut()

    async def serve(self) -> None:
        """Wait until this instance is asked to stop. If it ends for another reason, raise the error that ended it."""
        assert self._leading is not None, "entered first"
        assert self.listening.task is not None, "entered first"
        asked = asyncio.ensure_future(self._is_stopping.wait())
        try:
            await asyncio.wait([asked, self.listening.task, self._leading], return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()
        if self._leading.done():
            self._leading.result()
        if not self._is_stopping.is_set():
            raise RuntimeError("the instance ended, although nobody asked it to stop")

    # --- start: each part registers its own stop function, so that the last part started is the first stopped ---

    async def _start(self) -> None:
        settings = self.settings
        store = open_store(settings.database, settings.durable, self._facts, self._answers)
        self._stack.push_async_callback(store.close)
        leases = await self._stack.enter_async_context(
            fencehold.connect(settings.database, table=LEASE_TABLE, facts=self._facts, durable=settings.durable)
        )
        await until_answered(lambda: self._prepare(store, leases), self._facts, self._clock)
        await until_answered(store.open, self._facts, self._clock)
        outgoing = await self._stack.enter_async_context(aclosing(Outgoing()))
        self.leader = leases.leader(
            settings.lease_name, lease=settings.lease_duration_s, renew_every=settings.renew_interval_s,
            acquire_every=settings.acquire_interval_s, holder_id=settings.holder_id, on_error=settings.on_sql_error,
            release_on_stop=settings.release_on_stop,
        )  # fmt: skip
        leadership = self._running = self._leadership(store, outgoing)
        self._bind(store.intake, leadership)  # before leading: if the port is in use, the error comes before any work
        self._stack.push_async_callback(self.listening.stop)
        self._leading = asyncio.create_task(leadership.run(), name="submission-leadership")
        self._stack.push_async_callback(self._stop_leading, leadership)
        self._stack.push_async_callback(self.listening.stop)
        self._stack.push_async_callback(
            _ended, asyncio.create_task(self.app.readiness.watch(), name="submission-ready")
        )
        if self._registry.backlogs_max:
            counting = asyncio.create_task(self.app.admission.run(), name="submission-backlog")
            self._stack.push_async_callback(_ended, counting)
        await self.listening.start()
        self._stack.push_async_callback(self._drain)
        self._facts.fact(
            "serving", url=self.url, holder_id=settings.holder_id, targets=len(self._registry.contracts),
            database=label(settings.database),
        )  # fmt: skip

    async def _prepare(self, store: Store, leases: fencehold.Store) -> None:
        if self._creates_tables:
            try:
                steps = await leases.init() + await store.init()
            except ConfigurationError as error:
                if error.code != "schema_missing":
                    raise
                # It is too early for a missing table: the database file cannot be created.
                hint = "Check the directory in --database (SM_DATABASE) and who may write there."
                raise ConfigurationError(error.message, hint=hint, code="bad_url") from None
            if steps:
                self._facts.fact("tables_created", steps=steps, database=label(self.settings.database))
        missing = await self._missing(store) or await leases.missing()
        if missing:
            raise tables_missing(missing)
        misfit = await Fitness(store.intake, self.settings.lease_name).misfit(READY_LIMIT_S)
        if misfit is not None:
            raise misfit

    async def _missing(self, store: Store) -> list[str]:
        try:
            return await store.intake.missing_tables(READY_LIMIT_S)
        except ConfigurationError as error:
            if error.code != "schema_missing":
                raise
            return [error.message.rstrip(".")]  # such as a database file that does not exist

    def _leadership(self, store: Store, outgoing: Outgoing) -> Leadership:
        settings = self.settings
        context = ServiceContext(self._clock, self.metrics, self._facts)
        webhooks = WebhookDelivery(
            store.attempts, WebhookClient(outgoing),
            WebhookSettings(concurrency=settings.webhook_concurrency, limit_s=settings.webhook_timeout_s),
            context,
        )  # fmt: skip
        executor = Executor(
            store.attempts, GatewayClient(outgoing), webhooks,
            ExecutorSettings(
                concurrency=settings.concurrency,
                concurrency_total=max(CONCURRENCY_TOTAL_MIN, settings.concurrency),
                retry_delay_s=settings.retry_delay_s,
                gateway_limit_s=settings.gateway_timeout_s,
            ),
            context,
        )  # fmt: skip
        chosen = LeadershipSettings(
            refresh_every_s=settings.schedule_refresh_interval_s,
            drops_on_error=settings.on_sql_error == "drop",
            stop_limit_s=settings.drain_timeout_s,
            step_down_limit_s=STEP_DOWN_LIMIT_S,
            virtual_deadline_s=settings.virtual_deadline_s,
            priorities=self._registry.priorities,
        )
        reader = ScheduleReader(store.schedule, Fitness(store.intake, settings.lease_name), chosen, context)
        backlog = BacklogWatch(store.attempts, context)
        return Leadership(self.leader, reader, executor, webhooks, backlog, chosen, context)

    def _bind(self, intake: IntakePort, leadership: Leadership) -> None:
        settings = self.settings
        parts = Parts(
            intake, self._registry, self.leader, self.metrics, self._facts, settings,
            on_created=leadership.reader.hint,
            keeps_from_leading=lambda: _words(leadership.misfit) or self._lease_trouble.newest, answers=self._answers,
        )  # fmt: skip
        self.app = App(parts)
        self.metrics.watch_cannot_lead(self.app.cannot_lead)
        calls_max = max(CONCURRENCY_TOTAL_MIN, settings.concurrency)
        most = connections_max(settings.max_connections, files_max(), calls_max)
        self.listening = Listening(
            self.app, settings.host, settings.port,
            request_timeout_s=settings.request_timeout_s, drain_timeout_s=settings.drain_timeout_s,
            places=Places(most, self._facts, self.metrics),
        )  # fmt: skip

    # --- stop ---

    async def _drain(self) -> None:
        # The count reported at the end starts here, or earlier: when the database stopped answering, if it still does
        # not answer.
        self._drains_since_s = self._clock.now_s() - (self._answers.silent_s() or 0.0)
        self._facts.fact("draining", holder_id=self.settings.holder_id)
        await self.app.drain()
        await asyncio.sleep(self.settings.drain_delay_s)

    async def _stop_leading(self, leadership: Leadership) -> None:
        assert self._leading is not None, "it was started before this was pushed"
        self.attempts_cut = await leadership.stop(self._drains_since_s)
        await asyncio.wait([self._leading], timeout=STEP_DOWN_LIMIT_S)
        if not self._leading.done():
            self._leading.cancel()
            await asyncio.wait([self._leading])
        self.app.close()

    def _log_stopped(self) -> None:
        if not self._has_failed:
            self._facts.fact("stopped", holder_id=self.settings.holder_id)


def _words(error: FenceholdError | None) -> str | None:
    return None if error is None else redact(f"[{error.code}] {error.message}")


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
