"""`fencehold demo`: kills a leader, freezes another, and shows that its late write is refused. Needs no database."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text

import fencehold
from fencehold.cli import exit_codes
from fencehold.cli.demo.story import Stage, Story
from fencehold.cli.demo.worker import LATE, LEASE
from fencehold.cli.run import guardian
from fencehold.cli.screen import clean, put
from fencehold.cli.setup import Setup, with_setup
from fencehold.cli.signals import interruptible
from fencehold.model.errors import ConfigurationError, Unavailable
from fencehold.ports.fence import Transaction
from fencehold.runtime.store import Store
from fencehold.telemetry.fan_out import UNHEARD
from fencehold.testing import history
from fencehold.verify.journal import Journal
from fencehold.verify.verdict import beliefs, grants

STALE_RULES = {history.Rule.WRITES_IN_ORDER, history.Rule.WRITES_ARE_GRANTED}

SECONDS_MIN, SECONDS_MAX = 5.0, 600.0
LEASES_LONG = 10.0  # how many leases the story takes
AUDIT = "demo-audit"
ENDING = (signal.SIGTERM, signal.SIGHUP)  # as Ctrl-C does

CREATE = (
    "CREATE TABLE demo_log (id INTEGER PRIMARY KEY AUTOINCREMENT, holder_id TEXT NOT NULL, epoch INTEGER NOT NULL, "
    "note TEXT NOT NULL)"
)
READ = "SELECT id, holder_id, epoch, note FROM demo_log ORDER BY id"

EPILOG = """\b
Example:
  fencehold demo --keep

The last three lines count: writes accepted, writes accepted from stale leaders (0), two leaders at once (0).

Exit codes: 0 both counts are zero, 1 one is not, 130 interrupted
"""


@dataclass(frozen=True)
class Written:
    """One row of the demo's table. Ids are in commit order, because SQLite has one writer."""

    id: int
    holder_id: str
    epoch: int
    note: str


@dataclass(frozen=True)
class Verdict:
    writes_accepted: int
    stale_writes_accepted: int
    two_leaders_at_once: int

    @property
    def is_good(self) -> bool:
        """True if there are no faults and at least one write: a run without any write proves nothing."""
        return self.writes_accepted > 0 and self.stale_writes_accepted == self.two_leaders_at_once == 0


def verdict(journal: Journal, rows: Sequence[Written]) -> Verdict:
    writes = [history.Wrote(LEASE, row.holder_id, row.epoch, row.id) for row in rows]
    broken = [violation.rule for violation in history.check([*writes, *grants(journal), *beliefs(journal)])]
    stale = sum(rule in STALE_RULES for rule in broken)
    late = sum(row.note == LATE for row in rows)
    return Verdict(len(rows), max(stale, late), len(broken) - stale)


class Narrator:
    """Prints the demo's sentences with the seconds since the start: coloured on a terminal, plain elsewhere.

    With JSON it prints no sentence but keeps all for the final JSON object.
    """

    def __init__(self, setup: Setup) -> None:
        self.told: list[dict[str, Any]] = []
        self._is_json = setup.screen.is_json
        self._console = Console() if sys.stdout.isatty() else None
        self._began_s = guardian.now_s()

    def tell(self, sentence: str, style: str = "") -> None:
        at_s = guardian.now_s() - self._began_s
        self.told.append({"at_s": round(at_s, 3), "text": sentence})
        if self._is_json:
            return
        line = f"{at_s:5.1f} s  {clean(sentence)}"
        if self._console is not None:
            self._console.print(Text(line, style=style), soft_wrap=True)
        else:
            put(line)


@click.command(epilog=EPILOG)
@click.option("--seconds", type=float, default=20.0, help="About how long it takes (5 to 600).  [20]")
@click.option("--keep", is_flag=True, help="Keep the database file, and say where it is.")
@with_setup
def demo(setup: Setup, seconds: float, keep: bool) -> int:
    """Three processes, one lease, and everything that goes wrong with locks, in about 20 seconds.

    Uses a SQLite file in a temporary folder and no other database. The leader is killed with kill -9; the next is
    frozen between its check and its write, and its late write is refused; the last hands over cleanly.
    """
    if not SECONDS_MIN <= seconds <= SECONDS_MAX:
        raise ConfigurationError(
            f"--seconds is {seconds:g}; it must be from {SECONDS_MIN:g} to {SECONDS_MAX:g}.",
            hint="Leave --seconds out for 20.",
            code="bad_duration",
        )
    folder = Path(tempfile.mkdtemp(prefix="fencehold-demo-"))
    try:
        return asyncio.run(interruptible(_show(setup, folder, seconds / LEASES_LONG, keep), ENDING))
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


async def _show(setup: Setup, folder: Path, lease_s: float, keep: bool) -> int:
    narrator = Narrator(setup)
    file = folder / "demo.db"
    url = f"sqlite:///{file}"
    async with fencehold.connect(url, facts=UNHEARD) as store:
        await store.init()
        async with _transaction(store) as tx:
            await tx.execute(CREATE)
        async with Stage(url, lease_s) as stage:
            await Story(stage, store, narrator.tell, lease_s).run()
        async with _transaction(store) as tx:
            rows = [Written(*row) for row in await (await tx.execute(READ)).fetchall()]
    result = verdict(stage.journal, rows)
    if keep:
        narrator.tell(f"the database is kept: {file}")
    _tell(setup, narrator, result, str(file) if keep else None)
    return exit_codes.OK if result.is_good else exit_codes.NO


@asynccontextmanager
async def _transaction(store: Store) -> AsyncIterator[Transaction]:
    """Open a fenced transaction of the demo itself, under a lease of its own, which no worker wants."""
    async with store.leader(AUDIT) as leader:
        async for term in leader.terms():
            async with term.transaction() as tx:
                yield tx
            return
    raise Unavailable("The demo's own lease was not granted.", code="demo_stuck")


def _tell(setup: Setup, narrator: Narrator, result: Verdict, kept: str | None) -> None:
    lines = (
        f"writes accepted                     {result.writes_accepted}",
        f"writes accepted from stale leaders  {result.stale_writes_accepted}",
        f"two leaders at once                 {result.two_leaders_at_once}",
    )
    payload = {**asdict(result), "story": narrator.told, "database": kept}
    setup.screen.result(payload, "\n" + "\n".join(lines))
