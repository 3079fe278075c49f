"""What the random walks of leases, events and items share."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping

SEED = 20_310_517
SHOWN = 12
Move = Callable[[], Awaitable[None]]


class RandomWalk(ABC):
    """Makes random calls and compares each answer with the oracle's. A failure shows the last calls."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self.random = rng or random.Random(SEED)
        self.trail: list[str] = []

    @abstractmethod
    def moves(self) -> Mapping[Move, int]:
        """The moves that may come next, each with its weight."""

    async def walk(self, steps: int) -> None:
        for step in range(steps):
            moves = self.moves()
            try:
                await self.random.choices([*moves], weights=[*moves.values()])[0]()
            except AssertionError as failure:
                failure.add_note("\n  ".join([f"seed {SEED}, step {step}; the last calls:", *self.trail[-SHOWN:]]))
                raise

    def note(self, call: str) -> None:
        self.trail.append(call)
