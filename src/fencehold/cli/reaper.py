"""`fencehold reaper`: recovers the events of workers that died, for deployments whose workers bring no reaper."""

from __future__ import annotations

import asyncio

import click

from fencehold.cli import exit_codes, log_lines
from fencehold.cli.metrics_port import measured, metrics_options
from fencehold.cli.outbox_options import lease_option, outbox_option
from fencehold.cli.service import StopBy, must_have_leases, serve
from fencehold.cli.setup import Setup, with_setup
from fencehold.cli.watchdog import Stop
from fencehold.ports.facts import FactSink

EPILOG = """\b
Examples:
  fencehold reaper
  fencehold reaper --outbox billing_events --lease 60s --every 5s --metrics-port 9108
\b
Exit codes: 0 stopped in order, 1 did not end within a lease, 69 database unreachable at the start,
78 bad configuration, 130 stopped at once by a second signal
"""


@click.command(epilog=EPILOG)
@outbox_option
@lease_option
@click.option(
    "--every", default=None, metavar="DURATION", help="How often; less than a lease.  [10s, or a third of it]"
)
@click.option("--reaper-id", metavar="TEXT", help="Who reaps, for others to see.  [host-pid-random]")
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
    log_lines.log_to_stderr(as_json=setup.screen.is_json)

    async def work(stop_by: StopBy) -> int:
        return await _work(setup, outbox_name, lease, every, reaper_id, facts, stop_by)

    with measured(metrics_host, metrics_port) as facts:
        return asyncio.run(serve(work))


async def _work(
    setup: Setup, name: str, lease: str, every: str | None, reaper_id: str | None, facts: FactSink,
    stop_by: StopBy,
) -> int:  # fmt: skip
    store = setup.store(facts)
    outbox = store.outbox(name, lease=lease, reap_every=every)
    at_work = outbox.reaper(reaper_id)
    async with store:
        await must_have_leases(store)
        await outbox.reap()  # what is missing or not allowed shows now, instead of as a warning for ever
        facts.fact("reaper_started", outbox=name, every_s=outbox.settings.reap_every_s)
        stop_by(Stop(at_work.stop, outbox.settings.lease_s))
        await at_work.run()
        facts.fact("reaper_stopped", outbox=name)
    return exit_codes.OK
