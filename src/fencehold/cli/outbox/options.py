"""What the commands for an outbox share: which outbox, which events, and how they are checked."""

from __future__ import annotations

import difflib
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import click

from fencehold.cli.setup import Setup
from fencehold.model.durations import seconds
from fencehold.model.errors import ConfigurationError, FenceholdError
from fencehold.model.names import quoted
from fencehold.model.outbox.events import Status
from fencehold.model.outbox.settings import DEFAULT_OUTBOX
from fencehold.ports.facts import FactSink
from fencehold.runtime.first_use import MENDED_BY_INIT
from fencehold.runtime.outbox.outbox import Outbox
from fencehold.runtime.store import Store

F = TypeVar("F", bound=Callable[..., Any])

SHOWN_MAX = 5

# A verb of the operator's is one statement, which is executed whole or not at all, whoever stopped listening.
ALL_OR_NONE = "interrupted: it is one statement, so all of them were changed or none; look again"


def outbox_option(command: F) -> F:
    return click.option(
        "--outbox", "outbox_name", metavar="NAME", default=DEFAULT_OUTBOX, help=f"Its table.  [{DEFAULT_OUTBOX}]"
    )(command)


def outboxes_option(without: str) -> Callable[[F], F]:
    """`without` says what happens when none is named."""
    return click.option(
        "--outbox", "outbox_names", metavar="NAME", multiple=True,
        help=f"The table of an outbox; may be given several times.  [{without}]",
    )  # fmt: skip


def items_option(command: F) -> F:
    return click.option("--items", "with_items", is_flag=True, help="The tables of items as well.")(command)


def duration_option(flag: str, meaning: str, default: str | None = None) -> Callable[[F], F]:
    """Checked here, so that a mistake is told by the name of the option; how long it may be, the outbox knows."""

    def checked(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
        if value is not None:
            seconds(value, flag, may_be_zero=True)
        return value

    return click.option(flag, default=default, metavar="DURATION", help=meaning, callback=checked)


lease_option = duration_option("--lease", "How long an event's lease outlives its renewal.  [30s]", "30s")


class StatusChoice(click.Choice[str]):
    """Statuses in upper case, as they are shown everywhere; small letters are understood."""

    def __init__(self, statuses: Sequence[Status]) -> None:
        super().__init__([status.value for status in statuses])

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(str(value).upper(), param, ctx)


def dry_run_option(command: F) -> F:
    return click.option("--dry-run", is_flag=True, help="Say what would happen, and change nothing.")(command)


class NoOutbox(ConfigurationError):
    """There are outboxes, but none of this name."""

    def __init__(self, name: str, there: Sequence[str]) -> None:
        close = difflib.get_close_matches(name, there, n=1)
        meant = f"Did you mean --outbox {close[0]}?" if close else "Name one of them with --outbox."
        shown = ", ".join(there[:SHOWN_MAX]) + (", ..." if len(there) > SHOWN_MAX else "")
        super().__init__(
            f"There is no outbox {name!r} in this database; there is {shown}.",
            hint=f"{meant} For a new one: `fencehold init --outbox {name}`.",
            code="schema_missing",
        )


@asynccontextmanager
async def opened(setup: Setup, name: str, facts: FactSink | None = None) -> AsyncIterator[Outbox]:
    store = setup.store(facts)
    outbox = store.outbox(name)
    async with store, known(store, name):
        yield outbox


@asynccontextmanager
async def known(store: Store, name: str) -> AsyncIterator[None]:
    """An outbox of this name that is not there is told with those that are: most likely it is one of them.

    A table of this name that is somebody else's is told as that: `init` would refuse it.
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
    """Raise what `known` would, before a worker begins and logs its own end first."""
    if (found := await _why(store, name)) is not None:
        raise found


async def _why(store: Store, name: str) -> ConfigurationError | None:
    with suppress(FenceholdError):  # what is missing is told by who misses it, with the advice for this very outbox
        return await _unusable(store, name)
    return None


async def _unusable(store: Store, name: str) -> ConfigurationError | None:
    """Why `init` would not help: there are other outboxes, and not this one, or the table is somebody else's."""
    there = (await store.checkup.tables_made()).outboxes
    fault = None if name in there else (await store.checkup.faults([name]))[name]
    if fault is not None and fault.code == "schema_missing":
        return NoOutbox(name, there) if there else None
    return fault if fault is not None and fault.code == "table_exists" else None


def tracking_ids(given: Sequence[str]) -> list[str]:
    """Each once, in the order and spelling of the store."""
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
