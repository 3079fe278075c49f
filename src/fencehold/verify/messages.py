"""How a contender and its parent process talk: lines of JSON on stdout and stdin, each with the machine's own time."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from fencehold.ports.time_limit import TimeLimit
from fencehold.testing.history import boottime_s

LINE_BYTES_MAX = 65_536


@dataclass(frozen=True)
class Brief:
    """What a contender is told at its start, on stdin: the URL may hold a password, and all can see arguments."""

    url: str
    dialect: str
    schema: str
    lease_table: str
    outbox: str
    who: str
    lease_s: float
    write_every_s: float
    lock_name: str | None = None

    def line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"


def tell(kind: str, **fields: Any) -> None:
    # One write: the line is whole in the pipe or not there at all, also when the next instant brings kill -9.
    os.write(1, json.dumps({"kind": kind, "at_s": boottime_s(), **fields}, default=str).encode() + b"\n")


def tell_write(write_id: str, name: str, epoch: int, was_accepted: bool | None) -> None:
    tell("write", write_id=write_id, name=name, epoch=epoch, was_accepted=was_accepted)


def tell_stale(verb: str, what: str, token: str, seen: str, was_accepted: bool) -> None:
    tell("stale", verb=verb, what=what, token=token, seen=seen, was_accepted=was_accepted)


class Orders:
    """Lines of JSON from the parent process, each given to whoever listens for its `do`. Without it no contender."""

    def __init__(self) -> None:
        self._listeners: dict[str, Callable[[dict[str, Any]], None]] = {}
        self._rest = b""

    def on(self, do: str, listener: Callable[[dict[str, Any]], None]) -> None:
        self._listeners[do] = listener

    def hear(self) -> None:
        """To be called when stdin can be read."""
        data = os.read(0, LINE_BYTES_MAX)
        if not data:
            os._exit(0)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            order = json.loads(line)
            if (listener := self._listeners.get(order["do"])) is not None:
                listener(order)


class Windows:
    """The moments between a check and a write, opened on order: the contender says so and waits to be frozen there."""

    def __init__(self, orders: Orders, limit_s: float) -> None:
        self._limit_s = limit_s
        self._waiting: dict[int, asyncio.Future[str]] = {}
        orders.on("go", self._go)

    async def stand(self, number: int, role: str, moment: str, **what: Any) -> str:
        """Return when told to go on: who has taken over meanwhile, in words, or an empty text if nobody has."""
        going: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting[number] = going
        tell("window", window=number, role=role, moment=moment, **what)
        try:
            async with TimeLimit(self._limit_s):
                return await going
        except TimeoutError:
            return ""
        finally:
            del self._waiting[number]

    def _go(self, order: dict[str, Any]) -> None:
        going = self._waiting.get(order["window"])
        if going is not None and not going.done():
            going.set_result(order["taken"])
