"""What the random walks of leases, events and items share."""

from __future__ import annotations

import datetime as dt
import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, ClassVar

from fencehold.testing.conformance.oracle import ClientsAndOracle

SEED = 20_310_517
SHOWN = 12
NEXT_MAX = 9
SECOND = dt.timedelta(seconds=1)
Move = Callable[[], Awaitable[None]]


class RandomWalk(ABC):
    """Makes random calls of `pairs` and compares each answer with the oracle's. A failure shows the last calls."""

    goes_back: ClassVar[float] = 0.0  # how often the clock may jump back

    def __init__(self, *pairs: ClientsAndOracle[Any, Any], rng: random.Random | None = None) -> None:
        self.random = rng or random.Random(SEED)
        self.trail: list[str] = []
        self._clocks = pairs

    @abstractmethod
    def moves(self) -> Mapping[Move, int]:
        """The moves that may come next, each with its weight."""

    @abstractmethod
    def edges(self) -> Iterable[dt.datetime | None]:
        """The instants at which something lapses, or becomes due."""

    async def walk(self, steps: int) -> None:
        for step in range(steps):
            moves = self.moves()
            try:
                await self.random.choices([*moves], weights=[*moves.values()])[0]()
            except AssertionError as failure:
                failure.add_note("\n  ".join([f"seed {SEED}, step {step}; the last calls:", *self.trail[-SHOWN:]]))
                raise

    async def move_clock(self) -> None:
        """Mostly to one of the edges, or a tick beside it, where off-by-one errors show."""
        now, tick = self._clocks[0].now, self._clocks[0].tick
        near = [edge + n * tick for edge in self.edges() if edge is not None for n in (-1, 0, 1)]
        if self.random.random() >= self.goes_back:
            near = sorted(at for at in near if at > now)[:NEXT_MAX]
        at = now + self.random.choice((tick, SECOND, 2 * SECOND))
        if near and self.random.random() < 0.7:
            at = self.random.choice(near)
        self.note(f"clock to {at.isoformat()}")
        for pair in self._clocks:
            await pair.set_clock(at)

    def note(self, call: str) -> None:
        self.trail.append(call)
