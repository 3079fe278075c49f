"""`fencehold ls`: every lease in the table."""

from __future__ import annotations

import click

from fencehold.cli.screen import lease_json, remaining, second, state
from fencehold.cli.setup import Setup, with_setup, with_store
from fencehold.model.election.leases import Lease

COLUMNS = ("NAME", "STATE", "HOLDER", "EPOCH", "REMAINING", "EXPIRES (store time)")

EPILOG = """\b
Examples:
  fencehold ls
  fencehold ls reports/ -o json

Exit codes: 0 done, 69 database unreachable, 78 bad configuration
"""


@click.command(epilog=EPILOG)
@click.argument("prefix", default="")
@with_setup
def ls(setup: Setup, prefix: str) -> None:
    """List the leases whose name begins with PREFIX (all, without one), by name.

    A live lease is held by HOLDER. A released one was given back by HOLDER; an expired one was not: HOLDER died, was
    cut off, or was told not to release. Both are free. Times are the store's own.
    """
    leases = with_store(setup, lambda store: store.leases.list(prefix))
    payload = {"leases": [lease_json(lease) for lease in leases]}
    none = f"no lease begins with {prefix!r}" if prefix else "no leases yet"
    setup.screen.table(payload, COLUMNS, [_row(lease) for lease in leases], COLUMNS[-1:], instead=none)


def _row(lease: Lease) -> list[str]:
    return [
        lease.name, state(lease), lease.holder_id, str(lease.epoch), remaining(lease), second(lease.expires_at),
    ]  # fmt: skip
