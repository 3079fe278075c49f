"""`fencehold show NAME`: one lease, in full."""

from __future__ import annotations

import click

from fencehold.cli import exit_codes
from fencehold.cli.screen import lease_json, moment, remaining, state
from fencehold.cli.setup import Setup, with_setup, with_store
from fencehold.model.election.leases import Lease

EPILOG = """\b
Example:
  fencehold show nightly -o json

Exit codes: 0 done, 1 no such lease, 69 database unreachable, 78 bad configuration
"""


@click.command(epilog=EPILOG)
@click.argument("name")
@with_setup
def show(setup: Setup, name: str) -> None:
    """Show who holds the lease NAME, with which epoch, and until when (in store time)."""
    lease = with_store(setup, lambda store: store.leases.read(name))
    if lease is None:
        raise no_such_lease(name)
    setup.screen.fields({"lease": lease_json(lease)}, _rows(lease))


def no_such_lease(name: str) -> exit_codes.Refused:
    return exit_codes.Refused(
        f"Nobody has ever held a lease named {name!r}.",
        hint="`fencehold ls` lists the names there are.",
        code="no_such_lease",
        exit_code=exit_codes.NO,
    )


def _rows(lease: Lease) -> list[tuple[str, str]]:
    return [
        ("name", lease.name),
        ("state", state(lease)),
        ("holder", lease.holder_id),
        ("epoch", str(lease.epoch)),
        ("remaining", remaining(lease)),
        ("acquired", moment(lease.acquired_at)),
        ("renewed", moment(lease.renewed_at)),
        ("expires", moment(lease.expires_at)),
        ("asked to step down", "yes" if lease.step_down_requested else "no"),
    ]
