"""`submission-manager demo`: kills and freezes leaders under load, and checks afterwards that nothing was lost.

It prints a live table on a terminal, plain lines elsewhere, and nothing before the end with JSON.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fencehold import ConfigurationError
from fencehold.command import NO, OK, clean, interruptible, keep_secret, put
from submission_manager.demo.stage import Instance, a_place
from submission_manager.demo.story import Scene, Story, Told

SECONDS_MIN, SECONDS_MAX = 10.0, 600.0
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
DRAW_EVERY_S = 0.2
STYLES = {"leader": "bold green", "follower": "", "frozen": "bold cyan", "dead": "bold red", "starting": "dim"}

EPILOG = """\b
What happens, while clients submit 25 intents a second through the front and repeat what was not acknowledged:
  1. three instances start; one of them gets the lease, leads, and calls the gateway
  2. the leader is killed with kill -9 while attempts are under way; a new instance takes its place
  3. the next leader is frozen with SIGSTOP until another leads, then thawed: it may write nothing any more
  4. the next leader is stopped with SIGTERM: it finishes what it has begun and gives the lease back
\b
Then three accounts are compared that know nothing of each other: what the clients were told, what the database holds
(with triggers that noted every grant, start and record, and the lease each of them met), what the gateway was asked.
\b
  intents accepted                                 acknowledged with 200 to a client
  lost                                             of those: not in the database, or never ended
  attempts started or recorded under an old epoch  writes by an instance that no longer led
  gateway calls without a recorded start           calls that a crash could have hidden from max_attempts
  gateway calls made twice or beyond max_attempts  as the gateway counted
\b
Examples:
  submission-manager demo
  submission-manager demo --seconds 15 -o json
  submission-manager demo --database postgresql://app@localhost/app    # in a schema of its own, dropped afterwards
\b
Exit codes: 0 all of those are 0, 1 one is not, 69 something did not start, 130 interrupted
"""


@click.command(epilog=EPILOG)
@click.option(
    "--seconds", type=float, default=30.0, help="About how long it takes (10 to 600); a lease is a sixth.  [30]"
)
@click.option(
    "--database", default=None, metavar="URL", help="A PostgreSQL database instead of a temporary SQLite file."
)
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", help="For a program: json.  [table]"
)
def demo(seconds: float, database: str | None, output: str) -> int:
    """Three instances under load lose their leader three times, but no intent, in about 30 seconds.

    Uses HAProxy when it is installed, else a small front of its own; the fake gateway; and a SQLite file in a temporary
    folder, unless told otherwise. Leaves no process and no file behind.
    """
    if not SECONDS_MIN <= seconds <= SECONDS_MAX:
        raise ConfigurationError(
            f"--seconds is {seconds:g}; it must be from {SECONDS_MIN:g} to {SECONDS_MAX:g}.", code="bad_duration"
        )
    if database is not None:
        keep_secret(database)
    folder = Path(tempfile.mkdtemp(prefix="submission-manager-demo-"))
    try:
        # A second signal does not cut the cleanup short.
        return asyncio.run(interruptible(_show(database, folder, seconds, output == "json"), ENDING))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _show(database: str | None, folder: Path, seconds: float, is_json: bool) -> int:
    async with DemoScreen(is_json) as screen, a_place(database, folder) as url:
        story = Story(url, folder, seconds, screen.tell)
        screen.show(story)
        told = await story.run()
    put(json.dumps(_payload(told, screen), indent=2) if is_json else "\n" + "\n".join(_lines(told)))
    return OK if told.verdict.is_good else NO


def _lines(told: Told) -> list[str]:
    found = told.verdict
    stale = found.starts_under_an_old_epoch + found.records_under_an_old_epoch
    per_intent = ", ".join(f"{count} x {attempts}" for attempts, count in found.attempts_per_intent.items())
    facts = {
        "intents accepted": str(found.intents_accepted),
        "lost": str(found.intents_lost),
        "attempts started or recorded under an old epoch": str(stale),
        "gateway calls without a recorded start": str(found.calls_without_start + found.attempts_without_start),
        "gateway calls made twice or beyond max_attempts": str(found.calls_repeated + found.intents_called_too_often),
        "attempts whose outcome nobody knows, counted": str(found.unknown_outcomes),
        "attempts per intent (intents x attempts)": per_intent,
        "failover seconds": ", ".join(f"{one.after} {one.seconds:.1f}" for one in told.failovers),
    }
    wide = max(map(len, facts))
    return [f"{name:<{wide}}  {value}" for name, value in facts.items()]


def _payload(told: Told, screen: DemoScreen) -> dict[str, object]:
    failovers = [asdict(one) for one in told.failovers]
    return {
        **asdict(told.verdict), "ok": told.verdict.is_good, "failovers": failovers, "front": told.front,
        "requests_sent_again": told.repeats, "story": screen.told,
    }  # fmt: skip


# --- while it runs ---


class DemoScreen:
    """Use it with `async with`; `show` sets the story to draw."""

    def __init__(self, is_json: bool) -> None:
        self.told: list[dict[str, Any]] = []
        self._is_plain = not is_json and not sys.stdout.isatty()
        self._console = None if is_json or self._is_plain else Console()
        self._live = Live(console=self._console, auto_refresh=False, transient=True) if self._console else None
        self._began_s = time.monotonic()
        self._story: Story | None = None
        self._drawing: asyncio.Task[None] | None = None

    def tell(self, sentence: str, style: str) -> None:
        at_s = time.monotonic() - self._began_s
        self.told.append({"at_s": round(at_s, 3), "text": sentence})
        line = f"{at_s:5.1f} s  {clean(sentence)}"
        if self._live is not None:
            self._live.console.print(Text(line, style=style), soft_wrap=True)
        elif self._is_plain:
            put(line)

    def show(self, story: Story) -> None:
        self._story = story

    async def __aenter__(self) -> Self:
        if self._live is not None:
            self._live.start()
            self._drawing = asyncio.create_task(self._draw())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._drawing is not None:
            self._drawing.cancel()
            await asyncio.gather(self._drawing, return_exceptions=True)
        if self._live is not None:
            self._live.stop()

    async def _draw(self) -> None:
        assert self._live is not None, "only on a terminal"
        while True:
            if self._story is not None and self._story.scene is not None:
                self._live.update(picture(self._story.scene), refresh=True)
            await asyncio.sleep(DRAW_EVERY_S)


def picture(scene: Scene) -> Group:
    table = Table(box=None, padding=(0, 3, 0, 0))
    for column in ("INSTANCE", "PORT", "ROLE", "EPOCH"):
        table.add_column(column)
    for one in scene.stage.instances:
        role = role_of(one, scene)
        epoch = str(scene.glance.epoch) if role == "leader" and scene.glance is not None else ""
        table.add_row(one.holder_id, str(one.port), Text(role, style=STYLES[role]), epoch)
    pending = scene.glance.pending if scene.glance is not None else 0
    under_way = scene.glance.marked if scene.glance is not None else 0
    counts = f"acknowledged {len(scene.load.acknowledged)}   pending {pending}   under way {under_way}"
    return Group(Text(""), table, Text(f"{counts}   sent again {scene.load.repeats}", style="bold"))


def role_of(one: Instance, scene: Scene) -> str:
    if not one.is_alive:
        return "dead"
    if one.is_frozen:
        return "frozen"
    if not one.is_ready:
        return "starting"
    return "leader" if scene.glance is not None and scene.glance.holder_id == one.holder_id else "follower"
