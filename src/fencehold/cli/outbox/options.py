"""Options and checks that the outbox commands share: which outbox, which events."""

from __future__ import annotations

import difflib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import click

from fencehold.cli import exit_codes
from fencehold.cli.setup import Setup, finish
from fencehold.model.durations import seconds
from fencehold.model.errors import ConfigurationError, FenceholdError
from fencehold.model.names import quoted
from fencehold.model.outbox.rules import Status
from fencehold.model.outbox.settings import DEFAULT_OUTBOX
from fencehold.runtime.context import MENDED_BY_INIT
from fencehold.runtime.outbox.outbox import Outbox
from fencehold.runtime.store import Store

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

SHOWN_MAX = 5


#: Said at Ctrl-C. Each operator command is one statement, which is executed completely or not at all.
ALL_OR_NONE = "interrupted: it is one statement, so all of them were changed or none; look again"

outbox_option = click.option(
    "--outbox",
    "outbox_name",
    metavar="NAME",
    default=DEFAULT_OUTBOX,
    help=f"The table of the outbox.  [{DEFAULT_OUTBOX}]",
)
items_option = click.option("--items", "with_items", is_flag=True, help="The tables of items as well.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Say what would happen, and change nothing.")


def outboxes_option(without: str) -> Callable[[F], F]:
    """Return the option --outbox, which may be given several times.

    `without`: the help text for what happens when none is given.
    """
    return click.option(
        "--outbox", "outbox_names", metavar="NAME", multiple=True,
        help=f"The table of an outbox; may be given several times.  [{without}]",
    )  # fmt: skip


def duration_option(flag: str, meaning: str, default: str | None = None) -> Callable[[F], F]:
    """Return an option that takes a duration, checked here so that an error names the option.

    The outbox checks the maximum of the duration.
    """

    def checked(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
        if value is not None:
            seconds(value, flag, may_be_zero=True)
        return value

    return click.option(flag, default=default, metavar="DURATION", help=meaning, callback=checked)


lease_option = duration_option("--lease", "How long an event's lease outlives its renewal.  [30s]", "30s")


class StatusChoice(click.Choice[str]):
    """A choice of statuses, in upper case as they are shown everywhere; accepts lower case too."""

    def __init__(self, statuses: Sequence[Status]) -> None:
        super().__init__([status.value for status in statuses])

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(str(value).upper(), param, ctx)


class NoOutbox(ConfigurationError):
    """The error for a name of which the database has no outbox, although it has others."""

    def __init__(self, name: str, there: Sequence[str]) -> None:
        close = difflib.get_close_matches(name, there, n=1)
        meant = f"Did you mean --outbox {close[0]}?" if close else "Name one of them with --outbox."
        shown = ", ".join(there[:SHOWN_MAX]) + (", ..." if len(there) > SHOWN_MAX else "")
        super().__init__(
            f"There is no outbox {name!r} in this database; there is {shown}.",
            hint=f"{meant} For a new one: `fencehold init --outbox {name}`.",
            code="schema_missing",
        )


def with_outbox(setup: Setup, name: str, call: Callable[[Outbox], Awaitable[T]], if_interrupted: object = None) -> T:
    """Open the store, call `call` with this outbox, and return the result.

    At Ctrl-C print the text of `if_interrupted`, which says how far the call came.
    """
    store = setup.store()
    outbox = store.outbox(name)

    async def work() -> T:
        async with store, known(store, name):
            return await call(outbox)

    try:
        return finish(setup, store, work())
    except KeyboardInterrupt:
        if if_interrupted is None:
            raise
        setup.screen.say(str(if_interrupted))
        raise click.exceptions.Exit(exit_codes.INTERRUPTED) from None


@asynccontextmanager
async def known(store: Store, name: str) -> AsyncIterator[None]:
    """Replace an error about the outbox's missing tables, raised inside the block, by a more helpful one.

    Raises NoOutbox, which lists the existing outboxes, if there are others: the name is most likely wrong. If a table
    of this name belongs to another program, raises an error that says so, because `init` would refuse the table.
    """
    try:
        yield
    except ConfigurationError as error:
        if error.code not in MENDED_BY_INIT or isinstance(error, NoOutbox):
            raise
        if fault := await _why(store, name):
            raise fault from error
        raise


async def look_for(store: Store, name: str) -> None:
    """Raise the error that `known` would raise for this outbox, if any; call it before a worker starts.

    Otherwise the worker would log its start and end first.
    """
    if (found := await _why(store, name)) is not None:
        raise found


async def _why(store: Store, name: str) -> ConfigurationError | None:
    """Return the error that says why `init` would not help; None if it would.

    It would not help if only other outboxes exist, or if the table is another program's.
    """
    try:
        there = (await store.checkup.tables_made()).outboxes
        fault = None if name in there else (await store.checkup.faults([name]))[name]
    except FenceholdError:  # the worker itself reports what keeps it from its events
        return None
    if fault is not None and fault.code == "schema_missing":
        return NoOutbox(name, there) if there else None
    return fault if fault is not None and fault.code == "table_exists" else None


def tracking_ids(given: Sequence[str]) -> list[str]:
    """Return the ids in their given order, each once, in the store's spelling.

    Raises ConfigurationError for a bad id.
    """
    return list(dict.fromkeys(_tracking_id(one) for one in given))


def _tracking_id(given: str) -> str:
    try:
        return str(uuid.UUID(given))
    except ValueError:
        raise ConfigurationError(
            f"{quoted(given)} is no tracking id.",
            hint="It is a UUID, as `fencehold outbox ls` shows it.",
            code="bad_tracking_id",
        ) from None
