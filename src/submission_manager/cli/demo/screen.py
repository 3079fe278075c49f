"""The output of the running demo: a live table on a terminal, plain lines elsewhere, nothing with JSON."""

from __future__ import annotations

import asyncio
import sys
import time
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fencehold.command import clean, put
from submission_manager.demo.stage import Instance
from submission_manager.demo.story import Scene, Story

DRAW_EVERY_S = 0.2
STYLES = {"leader": "bold green", "follower": "", "frozen": "bold cyan", "dead": "bold red", "starting": "dim"}


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
