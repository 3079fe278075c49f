"""`fencehold ls` and `fencehold show NAME`: every lease in the table, and one in full."""

from __future__ import annotations

from typing import Any

import click

from fencehold.cli import exit_codes
from fencehold.cli.screen import moment, second
from fencehold.cli.setup import Setup, with_setup, with_store
from fencehold.model.election.rules import Lease

COLUMNS = ("NAME", "STATE", "HOLDER", "EPOCH", "REMAINING", "EXPIRES (store time)")

LS_EPILOG = """\b
Examples:
  fencehold ls
  fencehold ls reports/ -o json

Exit codes: 0 done, 69 database unreachable, 78 bad configuration
"""

SHOW_EPILOG = """\b
Example:
  fencehold show nightly -o json

Exit codes: 0 done, 1 no such lease, 69 database unreachable, 78 bad configuration
"""


@click.command(epilog=LS_EPILOG)
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


@click.command(epilog=SHOW_EPILOG)
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


# A lease, in words and in JSON


def lease_json(lease: Lease) -> dict[str, Any]:
    return {
        "name": lease.name,
        "holder_id": lease.holder_id,
        "epoch": lease.epoch,
        "state": state(lease),
        "remaining_s": round(max(0.0, lease.remaining_s), 3),
        "acquired_at": lease.acquired_at.isoformat(),
        "renewed_at": lease.renewed_at.isoformat(),
        "expires_at": lease.expires_at.isoformat(),
        "step_down_requested": lease.step_down_requested,
    }


def state(lease: Lease) -> str:
    if lease.is_live:
        return "live"
    return "released" if lease.is_released else "expired"


def remaining(lease: Lease) -> str:
    return f"{lease.remaining_s:.1f} s" if lease.is_live else "-"
