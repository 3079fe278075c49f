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
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fencehold import ConfigurationError
from fencehold.command import NO, OK, clean, interruptible, keep_secret, put
from submission_manager.demo.evidence import Verdict
from submission_manager.demo.stage import Instance, a_place
from submission_manager.demo.story import Failover, Scene, Story

SECONDS_MIN, SECONDS_MAX = 10.0, 600.0
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
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
    screen = DemoScreen(is_json)
    async with a_place(database, folder) as url:
        story = screen.story = Story(url, folder, seconds, screen.tell)
        with screen.live or nullcontext():
            found = await story.run()
    assert story.scene is not None, "it has run"
    payload = _payload(found, story.scene, screen.told)
    put(json.dumps(payload, indent=2) if is_json else "\n" + "\n".join(_lines(found, story.scene.failovers)))
    return OK if found.is_good else NO


def _lines(found: Verdict, failovers: Sequence[Failover]) -> list[str]:
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
        "failover seconds": ", ".join(f"{one.after} {one.seconds:.1f}" for one in failovers),
    }
    wide = max(map(len, facts))
    return [f"{name:<{wide}}  {value}" for name, value in facts.items()]


def _payload(found: Verdict, scene: Scene, story: list[dict[str, Any]]) -> dict[str, object]:
    failovers = [asdict(one) for one in scene.failovers]
    return {
        **asdict(found), "ok": found.is_good, "failovers": failovers, "front": scene.front,
        "requests_sent_again": scene.load.repeats, "story": story,
    }  # fmt: skip


# --- while it runs ---


class DemoScreen:
    """Prints the demo's sentences.

    On a terminal, `live` also draws the state of `story` as a table, once `story` is set.
    """

    def __init__(self, is_json: bool) -> None:
        self.told: list[dict[str, Any]] = []
        self.story: Story | None = None
        self._is_json = is_json
        self._began_s = time.monotonic()
        on_terminal = sys.stdout.isatty() and not is_json
        self.live = Live(get_renderable=self._drawn, refresh_per_second=5, transient=True) if on_terminal else None

    def tell(self, sentence: str, style: str) -> None:
        at_s = time.monotonic() - self._began_s
        self.told.append({"at_s": round(at_s, 3), "text": sentence})
        line = f"{at_s:5.1f} s  {clean(sentence)}"
        if self.live is not None:
            self.live.console.print(Text(line, style=style), soft_wrap=True)
        elif not self._is_json:
            put(line)

    def _drawn(self) -> RenderableType:
        """Return what to draw now. Called on a thread of `live`."""
        scene = self.story and self.story.scene
        return picture(scene) if scene else ""


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
