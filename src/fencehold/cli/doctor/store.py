"""The doctor's checks of the database itself: tables, rights, a write that is rolled back, settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fencehold.cli.screen import without_secrets
from fencehold.connect import DEFAULT_TABLE
from fencehold.model.errors import ConfigurationError, FenceholdError
from fencehold.model.outbox.settings import DEFAULT_OUTBOX
from fencehold.ports.checkup import State
from fencehold.runtime.checkup import LEASES
from fencehold.runtime.context import ITEMS
from fencehold.runtime.store import Store


@dataclass(frozen=True)
class Finding:
    check: str
    state: State
    detail: str
    hint: str = ""
    outbox: str | None = None
    of: str = ""  # shown in the table, where two rows would have the same name


def failed(check: str, error: FenceholdError, outbox: str | None = None) -> Finding:
    """Return a finding made from an error that the store raised, with the error's own hint."""
    return Finding(check, State.ERROR, without_secrets(error.message.rstrip(".")), without_secrets(error.hint), outbox)


GRANTS = "GRANT what `fencehold sql init{option}` prints."
NO_TABLE = ("schema_missing", "no_outbox", "no_items", "no_permission")  # the last: no table, and no right to make one
#: Without these rights nothing works on a table; without the others some operations still work.
NEEDED = ("SELECT", "UPDATE")
NEEDED_FOR_LEASES = (*NEEDED, "INSERT")  # the first acquire of a lease inserts its row

Faults = Mapping[str, ConfigurationError | None]


async def of_leases(store: Store, faults: Faults, rights: Mapping[str, list[str]], table: str) -> list[Finding]:
    fault = faults[LEASES]
    if fault is not None:
        return [failed("lease table", fault)]
    present = Finding("lease table", State.OK, "present, with all its columns")
    option = "" if table == DEFAULT_TABLE else f" --table {table}"
    lacking = _rights("leases", rights[LEASES], option, needed=NEEDED_FOR_LEASES)
    return [present, *lacking, await _writing(store)]


def of_items(faults: Faults, rights: Mapping[str, list[str]]) -> list[Finding]:
    lacking = _rights("items", rights.get(ITEMS, []), " --items")
    return _of_tables("items", faults[ITEMS], lacking, "there are no tables of items")


async def outboxes_there(store: Store) -> tuple[Sequence[str], list[Finding]]:
    """Return the names of all outboxes that `init` created, and findings about this search itself.

    Without the right to read the record of what `init` created, only the default outbox is returned.
    """
    try:
        found = (await store.checkup.tables_made()).outboxes
    except ConfigurationError as error:
        if error.code != "no_permission":
            raise
        words = f"this user may not read the record of what init made: only {DEFAULT_OUTBOX!r} was looked for"
        return [DEFAULT_OUTBOX], [
            Finding("outboxes", State.SKIPPED, words, f"{GRANTS.format(option='')} Or name them: --outbox.")
        ]
    return found, [] if found else [Finding("outboxes", State.SKIPPED, "there are none")]


def of_outbox_tables(name: str, fault: ConfigurationError | None, rights: list[str], must_exist: bool) -> list[Finding]:
    lacking = _rights(name, rights, f" --outbox {name}", name)
    return _of_tables("tables", fault, lacking, "" if must_exist else "there is no outbox of this name", name)


def _of_tables(
    check: str, fault: ConfigurationError | None, lacking: list[Finding], absent: str, outbox: str | None = None
) -> list[Finding]:
    """Return the findings about some tables.

    If the tables are in order, the findings say so, and `lacking` is added: the findings about missing rights. If the
    tables do not exist, the finding has the text `absent`, or is an error if that text is empty.
    """
    if fault is None:
        return [Finding(check, State.OK, "present, with all their columns", outbox=outbox), *lacking]
    if absent and fault.code in NO_TABLE:
        return [Finding(check, State.SKIPPED, absent, outbox=outbox)]
    return [failed(check, fault, outbox)]


async def of_settings(store: Store) -> list[Finding]:
    """Return findings about the database's settings; an error while reading the settings becomes a finding too."""
    try:
        return [Finding(one.check, one.state, one.detail, one.hint) for one in await store.checkup.conditions()]
    except FenceholdError as error:
        return [failed("settings", error)]


async def _writing(store: Store) -> Finding:
    try:
        not_tried = await store.checkup.try_write()
    except FenceholdError as error:
        return failed("writing", error)
    if not_tried is not None:
        return Finding("writing", State.SKIPPED, f"not tried: {not_tried}")
    return Finding("writing", State.OK, "a lease was acquired and rolled back")


def _rights(
    of: str, missing: Sequence[str], option: str, outbox: str | None = None, needed: tuple[str, ...] = NEEDED
) -> list[Finding]:
    """Return a finding for missing rights. `option` is what `fencehold sql init` needs to print these tables."""
    if not missing:
        return []
    is_needed = any(right.startswith(needed) for right in missing)
    state = State.ERROR if is_needed else State.WARNING
    hint = GRANTS.format(option=option)
    return [Finding("rights", state, f"this user lacks {', '.join(missing)}", hint, outbox, of)]
