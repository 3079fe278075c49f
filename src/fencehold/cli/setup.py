"""The options that every command has, before or after its name, and the store that they select."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import click

import fencehold
from fencehold.cli import screen
from fencehold.connect import DEFAULT_TABLE, label, scheme
from fencehold.model.durable import NO_STANDBY_OF_ITS_OWN, Called, durable, unsupported
from fencehold.model.errors import ConfigurationError
from fencehold.ports.facts import FactSink
from fencehold.runtime.store import OPEN_LIMIT_S
from fencehold.telemetry.fan_out import UNHEARD

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

DSN_VARIABLE = "FENCEHOLD_DSN"
VARIABLES = Called("FENCEHOLD_DURABLE", "FENCEHOLD_WITHOUT_STANDBY")
SILENT_FOR_S = 3.0


@dataclass(frozen=True)
class Setup:
    """The options that all commands share, as given on the command line and in the environment."""

    given_dsn: str | None = None
    given_table: str | None = None
    output: str = "table"

    def over(self, dsn: str | None, table: str | None, output: str | None) -> Setup:
        """Return a setup in which the given options, from after the command's name, override those before it."""
        return Setup(
            self.given_dsn if dsn is None else dsn, self.given_table if table is None else table, output or self.output
        )

    @property
    def screen(self) -> screen.Screen:
        return screen.Screen(self.output)

    @property
    def table(self) -> str:
        return DEFAULT_TABLE if self.given_table is None else self.given_table

    @property
    def dsn_or_none(self) -> str | None:
        """Return the database's URL; None if none was named.

        Raises ConfigurationError if --dsn is empty: using the environment variable instead could be another database.
        """
        dsn = os.environ.get(DSN_VARIABLE) or None if self.given_dsn is None else self.given_dsn.strip()
        if dsn == "":
            raise ConfigurationError(
                "The address of the database is empty.",
                hint=f"Name one, for example sqlite:///app.db, or leave it out to use {DSN_VARIABLE}. Is a variable of "
                "your script not set?",
                code="no_dsn",
            )
        if dsn is not None:
            screen.keep_secret(dsn)
        return dsn

    @property
    def dsn(self) -> str:
        dsn = self.dsn_or_none
        if dsn is None:
            raise ConfigurationError(
                "No database was named.",
                hint=f"Set {DSN_VARIABLE} (or give --dsn), for example {DSN_VARIABLE}=sqlite:///app.db",
                code="no_dsn",
            )
        if scheme(dsn) == "memory" or dsn.lower().endswith(":///:memory:"):
            raise ConfigurationError(
                "A store in memory lives inside one process: a command would see, and protect, nothing.",
                hint="Name a database that the processes share, such as sqlite:///app.db.",
                code="bad_url",
            )
        return dsn

    def store(self, facts: FactSink | None = None) -> fencehold.Store:
        """Return a store for one short command: it tries an unreachable database once.

        Without `facts` nothing is logged.
        """
        return fencehold.connect(self.dsn, table=self.table, facts=facts or UNHEARD, open_timeout=0)

    def say_silent(self) -> None:
        """Print that the database has not answered yet: for example, a host that is switched off never answers."""
        self.screen.say(f"no answer from {label(self.dsn)} yet; it is asked for at most {OPEN_LIMIT_S:.0f} s")

    def patient_store(self, facts: FactSink) -> fencehold.Store:
        """Return a store for a long command: it waits for an unreachable database, and reports that to `facts`."""
        asked: Any = os.environ.get(VARIABLES.durable) or None
        without: Any = os.environ.get(VARIABLES.without_standby) or None
        if durable(asked, without, VARIABLES) is not None and scheme(self.dsn) in NO_STANDBY_OF_ITS_OWN:
            raise unsupported(scheme(self.dsn), VARIABLES)
        return fencehold.connect(self.dsn, table=self.table, facts=facts, durable=asked, without_standby=without)


def options(command: F) -> F:
    """Return the command with the options --dsn, --table and -o added."""
    dsn = click.option(
        "--dsn", metavar="URL", default=None,
        help=f"The database. Prefer the variable {DSN_VARIABLE}: what stands here is visible in the process list.",
    )  # fmt: skip
    table = click.option("--table", metavar="NAME", default=None, help=f"The lease table.  [{DEFAULT_TABLE}]")
    output = click.option(
        "-o", "--output", type=click.Choice(["table", "json"]), default=None,
        help="For people (table; plain text off a terminal) or for programs (json).  [table]",
    )  # fmt: skip
    return dsn(table(output(command)))


def with_setup(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return the command with the shared options added; it gets them as a Setup in its first argument.

    Options after the command's name override those before it.
    """

    @functools.wraps(command)
    def merged(*args: Any, dsn: str | None, table: str | None, output: str | None, **kwargs: Any) -> Any:
        before = click.get_current_context().find_object(Setup) or Setup()
        return command(before.over(dsn, table, output), *args, **kwargs)

    return options(merged)


def with_store(setup: Setup, call: Callable[[fencehold.Store], Awaitable[T]], facts: FactSink | None = None) -> T:
    """Open the store for one call, and return what it returns."""
    store = setup.store(facts)

    async def work() -> T:
        async with store:
            return await call(store)

    return finish(setup, store, work())


def finish(setup: Setup, store: fencehold.Store, work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end and return its result; Ctrl-C cancels it.

    Prints a message if `store` has not opened after a few seconds.
    """
    return asyncio.run(_spoken_of(setup, store, work))


async def _spoken_of(setup: Setup, store: fencehold.Store, work: Coroutine[Any, Any, T]) -> T:
    def speak() -> None:
        if not store.is_open:
            setup.say_silent()

    timer = asyncio.get_running_loop().call_later(SILENT_FOR_S, speak)
    try:
        return await work
    finally:
        timer.cancel()
