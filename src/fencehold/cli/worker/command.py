"""`fencehold worker MODULE:ATTRIBUTE`: runs the user's handlers on the events of an outbox."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial
from typing import Any

import click

from fencehold.cli import exit_codes
from fencehold.cli.outbox.options import duration_option, known, lease_option, look_for, outbox_option
from fencehold.cli.screen import log_to_stderr
from fencehold.cli.setup import Setup, with_setup
from fencehold.cli.worker import handler_import
from fencehold.cli.worker.health import Measured, measured, metrics_options
from fencehold.cli.worker.service import Stop, StopBy, leave, leave_soon, serve
from fencehold.model.outbox.settings import CONCURRENCY_MAX
from fencehold.runtime.handlers.watch import blocked_by
from fencehold.runtime.outbox.outbox import Outbox
from fencehold.runtime.outbox.worker import Worker
from fencehold.runtime.store import Store

THREADS = "fencehold-handler"
THREADS_END_S = 0.5  # idle threads were asked to end, and end within this time

EPILOG = """\b
Example: in app.py
  async def send_mail(event):
      ...      # event.payload; to return is done, to raise: tried again
  handlers = {"order.created": send_mail}
\b
and in a shell
  export FENCEHOLD_DSN=postgresql://app@db/app
  fencehold worker app:handlers --concurrency 20

Exit codes: 0 stopped in order, 1 stopped, but a handler did not end in time,
78 bad configuration (no such module, no tables, no rights, no reaper), 80 gave up (--give-up-after),
130 stopped at once by a second signal
"""


@click.command(epilog=EPILOG)
@click.argument("handlers", metavar="MODULE:ATTRIBUTE")
@outbox_option
@click.option(
    "--concurrency", type=click.IntRange(1, CONCURRENCY_MAX), default=10, help="Events handled at the same time.  [10]"
)
@lease_option
@duration_option("--poll-every", "How often to look for events without being notified.  [1s]", "1s")
@duration_option("--max-processing", "A handler that takes longer is aborted.  [3 leases]")
@duration_option("--shutdown-timeout", "How long a stop waits for handlers; at most a lease.  [a lease]")
@duration_option("--give-up-after", "Exit (80) after being unable to handle any event for so long.  [never]")
@duration_option("--retry-base", "The wait after a first failure; doubled after each further one.  [1s]", "1s")
@duration_option("--retry-cap", "The longest wait before another try.  [30s]", "30s")
@click.option(
    "--batch-size", type=click.IntRange(1, CONCURRENCY_MAX), help="Handlers get lists of up to this many events."
)
@click.option("--ordered", is_flag=True, help="Handle the events of one aggregate one at a time, oldest first.")
@click.option("--no-reaper", is_flag=True, help="Start no reaper; one must run elsewhere (`fencehold reaper`).")
@click.option("--worker-id", metavar="TEXT", help="The name of this worker, as others see it.  [host-pid-random]")
@metrics_options
@with_setup
def worker(
    setup: Setup, handlers: str, outbox_name: str, metrics_host: str, metrics_port: int | None, **given: Any
) -> int:
    """Handle the events of an outbox until SIGTERM or Ctrl-C.

    MODULE:ATTRIBUTE is looked for in the current directory first. It is a function of one event, async or not, or a
    dict from event type to such functions ("*" takes all other types). The log goes to stderr.

    The first signal stops it in order: no more events, those in hand are finished, or handed back when the shutdown
    timeout is near. A second one stops it at once; what it held is recovered when its lease has lapsed. A database
    that goes away while it runs is waited for.

    It warns of handlers that take long, and of an event loop that one of them blocks. With --give-up-after it exits
    with 80 once the loop has been blocked for so long, or all places have been taken for so long by handlers that lost
    their leases and do not return: let a supervisor start it anew.
    """
    # Left out: this command prints the same error itself when it ends.
    log_to_stderr(as_json=setup.screen.is_json, without=("worker_died",))
    handler = handler_import.load(handlers)
    of_outbox = {name: given.pop(name) for name in ("lease", "retry_base", "retry_cap", "ordered")}
    of_worker = {"reaper": not given.pop("no_reaper"), **given}

    async def work(stop_by: StopBy) -> int:
        store = setup.patient_store(told.facts)
        outbox = store.outbox(outbox_name, **of_outbox)
        return await _work(setup, store, outbox, outbox.worker(handler, **of_worker), told, stop_by)

    with measured(metrics_host, metrics_port) as told:
        return asyncio.run(serve(work))


async def _work(setup: Setup, store: Store, outbox: Outbox, at_work: Worker, told: Measured, stop_by: StopBy) -> int:
    at_work.on_stuck = lambda _: leave_soon(exit_codes.STUCK)
    why_blocked = partial(blocked_by, at_work._context, asyncio.get_running_loop(), threading.get_ident())
    async with told.health.watched(at_work.probe, lambda: at_work.settings.max_processing_s, why_blocked):
        await _run(store, at_work, outbox.settings.lease_s, stop_by)
    if at_work.in_flight or _handlers_left():
        setup.screen.say("a handler did not end in time and is left behind; the reaper recovers its event")
        leave(exit_codes.NO)
    return exit_codes.OK


def _handlers_left() -> bool:
    """Return whether a handler's thread still runs: it cannot be stopped, and Python would wait for it at exit."""
    left = [thread for thread in threading.enumerate() if thread.name.startswith(THREADS)]
    end_s = time.monotonic() + THREADS_END_S
    for thread in left:
        thread.join(max(0.0, end_s - time.monotonic()))
    return any(thread.is_alive() for thread in left)


async def _run(store: Store, at_work: Worker, lease_s: float, stop_by: StopBy) -> None:
    def in_hand() -> list[str]:
        return [claimed.claim.tracking_id for claimed in list(at_work._context.claimed_events.values())]

    async with store:
        stop_by(Stop(at_work.stop, at_work.settings.shutdown_timeout_s, in_hand, spare_s=lease_s))
        async with known(store, at_work.outbox):
            await look_for(store, at_work.outbox)
            await at_work.run()
