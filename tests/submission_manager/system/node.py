"""Stand-in for `submission-manager serve`, until it is there: the same settings from SM_* variables."""

from __future__ import annotations

import asyncio
import os
import signal

import fencehold
from fencehold.runtime.clock import BootClock
from fencehold.telemetry.logs import LogSink
from submission_manager.executor import Executor, ExecutorSettings
from submission_manager.executor_webhooks import WebhookDesk, WebhookSettings
from submission_manager.gateway_client import GatewayClient
from submission_manager.http.app import App, Parts
from submission_manager.http.server import Listening
from submission_manager.leadership import Leadership, LeadershipSettings
from submission_manager.metrics import Metrics
from submission_manager.outgoing import Outgoing
from submission_manager.registry import load
from submission_manager.settings import settings
from submission_manager.stores.opening import LEASE_TABLE, open_store
from submission_manager.webhook import WebhookClient


async def main() -> None:
    import logging
    logging.basicConfig(level=logging.INFO)
    s = settings({}, os.environ)
    facts, metrics, clock = LogSink(), Metrics(), BootClock()
    store = open_store(s.database)
    leases = fencehold.connect(s.database, table=LEASE_TABLE, facts=facts)
    await store.init()
    await leases.open()
    await leases.init()
    await store.open()
    leader = leases.leader(
        s.lease_name, lease=s.lease_duration_s, renew_every=s.renew_interval_s, acquire_every=s.acquire_interval_s,
        holder_id=s.holder_id, on_error=s.on_sql_error,
    )
    async with Outgoing() as outgoing:
        parts = {"writes": asyncio.Semaphore(4), "clock": clock, "metrics": metrics, "facts": facts}
        desk = WebhookDesk(store.attempts, WebhookClient(outgoing), WebhookSettings(limit_s=s.webhook_timeout_s), **parts)
        executor = Executor(
            store.attempts, GatewayClient(outgoing), desk,
            ExecutorSettings(s.concurrency, max(128, s.concurrency), s.retry_delay_s, s.gateway_timeout_s), **parts,
        )
        del parts["writes"]
        leadership = Leadership(
            leader, store.schedule, executor, desk,
            LeadershipSettings(s.schedule_refresh_interval_s, drops_on_error=s.on_sql_error == "drop"), **parts,
        )
        app = App(Parts(store.intake, load(s.registry), leader, metrics, facts, s))
        http = Listening(app, s.host, s.port, request_timeout_s=s.request_timeout_s, drain_timeout_s=s.drain_timeout_s)
        await http.start()
        run = asyncio.create_task(leadership.run())
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        await stop.wait()
        await app.drain()
        await leadership.stop()
        await run
        await http.stop()
    await store.close()
    await leases.close()


asyncio.run(main())
