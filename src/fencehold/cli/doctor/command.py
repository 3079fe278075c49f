"""`fencehold doctor`: checks that everything exists and runs, and if not, says what to do."""

from __future__ import annotations

import click

from fencehold.cli import exit_codes
from fencehold.cli.doctor.checks import Doctor
from fencehold.cli.doctor.store import Finding
from fencehold.cli.outbox.options import lease_option, outboxes_option
from fencehold.cli.setup import Setup, finish, with_setup
from fencehold.model.durations import seconds
from fencehold.model.names import table_name
from fencehold.model.outbox.settings import outbox_settings
from fencehold.ports.checkup import State

EPILOG = """\b
Examples:
  fencehold doctor
  fencehold doctor --outbox orders --outbox billing --pending-age-max 1m

Exit codes: 0 all is well, 1 with findings (also when the database cannot be reached), 78 bad configuration
"""


@click.command(epilog=EPILOG)
@outboxes_option("all that are there")
@lease_option
@click.option(
    "--pending-age-max", default="5m", metavar="DURATION", help="Warn if a due event has waited for longer.  [5m]"
)
@with_setup
def doctor(setup: Setup, outbox_names: tuple[str, ...], lease: str, pending_age_max: str) -> int:
    """Check the database, its tables and clock, and every outbox named: report what needs attention.

    A lease is acquired and rolled back; tables, columns, rights, encoding, durability and limits set for this user are
    looked at. Of an outbox: whether a reaper runs, what has lapsed, what is dead, how long events wait. --lease is that
    of its workers. Without --outbox every outbox is looked at that `init` made and that is still there; where there is
    none, none is missed. Changes nothing.
    """
    for name in outbox_names:
        table_name(name)
    checks = Doctor(outbox_settings(lease=lease), seconds(pending_age_max, "--pending-age-max"), setup.table)
    store = setup.store()
    findings = finish(setup, store, checks.examine(store, outbox_names))
    is_well = all(finding.state in (State.OK, State.SKIPPED) for finding in findings)
    payload = {"healthy": is_well, "checks": [_json(finding) for finding in findings]}
    setup.screen.table(payload, ("CHECK", "STATE", "WHAT WAS FOUND"), [_row(finding) for finding in findings])
    return exit_codes.OK if is_well else exit_codes.NO


def _json(finding: Finding) -> dict[str, str | None]:
    return {
        "check": finding.check, "outbox": finding.outbox, "state": finding.state, "detail": finding.detail,
        "hint": finding.hint,
    }  # fmt: skip


def _row(finding: Finding) -> tuple[str, str, str]:
    of = finding.outbox or finding.of
    check = f"{of}: {finding.check}" if of else finding.check
    return check, finding.state.value, f"{finding.detail}. {finding.hint}".rstrip(" ")
