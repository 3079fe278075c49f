"""`fencehold reaper`: recovers the events of workers that died, for deployments whose workers bring no reaper."""

from __future__ import annotations

import asyncio

import click

from fencehold.cli import exit_codes
from fencehold.cli.outbox.options import duration_option, known, lease_option, outbox_option
from fencehold.cli.screen import log_to_stderr
from fencehold.cli.setup import Setup, with_setup
from fencehold.cli.worker.health import Measured, measured, metrics_options
from fencehold.cli.worker.service import Stop, StopBy, serve
from fencehold.ports.fact_table import OutboxFacts
from fencehold.runtime.core.clock import BootClock
from fencehold.runtime.core.repeated_failures import Outage

EPILOG = """\b
Examples:
  fencehold reaper
  fencehold reaper --outbox billing_events --lease 60s --metrics-port 9108

A database that is away is waited for, with a line in the log.

Exit codes: 0 stopped in order, 1 did not end within a lease, 78 bad configuration (no tables, no rights),
130 stopped at once by a second signal
"""


@click.command(epilog=EPILOG)
@outbox_option
@lease_option
@duration_option("--every", "How often to look for lapsed events; less than a lease.  [10s, or a third of it]")
@click.option("--reaper-id", metavar="TEXT", help="The name of this reaper, as others see it.  [host-pid-random]")
@metrics_options
@with_setup
def reaper(
    setup: Setup, outbox_name: str, lease: str, every: str | None, reaper_id: str | None, metrics_host: str,
    metrics_port: int | None,
) -> int:  # fmt: skip
    """Recover events whose worker died, hung or was cut off, until SIGTERM or Ctrl-C.

    An event whose lease has lapsed becomes PENDING again, or a dead letter when its tries are spent. Several may run:
    one is active, the others take over. It looks once at the start, also while another is active.
    """
    log_to_stderr(as_json=setup.screen.is_json)

    async def work(stop_by: StopBy) -> int:
        return await _work(setup, outbox_name, lease, every, reaper_id, told, stop_by)

    with measured(metrics_host, metrics_port) as told:
        return asyncio.run(serve(work))


async def _work(
    setup: Setup, name: str, lease: str, every: str | None, reaper_id: str | None, told: Measured,
    stop_by: StopBy,
) -> int:  # fmt: skip
    facts = OutboxFacts(told.facts, outbox=name)
    store = setup.patient_store(told.facts)
    outbox = store.outbox(name, lease=lease, reap_every=every)
    at_work = outbox.reaper(reaper_id)
    async with told.health.watched(at_work.probe, lambda: outbox.settings.lease_s), store:
        # A missing table or right raises here; later it would only be a warning, again and again.
        outage = Outage(facts, BootClock())
        async with known(store, name):
            await outage.wait_for(outbox.reap)
        await outbox.close()  # its connection was needed only for this one run
        await at_work.begin()
        facts.reaper_started(every_s=outbox.settings.reap_every_s)
        stop_by(Stop(at_work.stop, outbox.settings.lease_s))
        await at_work.run()
        facts.reaper_stopped()
    return exit_codes.OK
