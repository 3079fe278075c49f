"""The messages between a contender and its parent process: lines of JSON. Reports carry the time of the machine."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fencehold.ports.time_limit import TimeLimit
from fencehold.runtime.election.term import Term
from fencehold.testing.history import boottime_s

LINE_BYTES_MAX = 65_536


@dataclass(frozen=True)
class Brief:
    """The settings that a contender gets as the first line of its stdin.

    They are no arguments of the command: the URL may hold a password, and every user of the machine can see arguments.
    """

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
    # One write: the whole line is in the pipe, or nothing of it, even if kill -9 follows at once.
    os.write(1, json.dumps({"kind": kind, "at_s": boottime_s(), **fields}, default=str).encode() + b"\n")


def tell_trust(term: Term) -> None:
    """Report until when the process trusts its term.

    The time is read before the remaining time, so it is not too late.
    """
    asked_s = boottime_s()
    tell("trusts", name=term.name, epoch=term.epoch, until_s=asked_s + term.remaining_s)


def tell_write(write_id: str, name: str, epoch: int, was_accepted: bool | None) -> None:
    tell("write", write_id=write_id, name=name, epoch=epoch, was_accepted=was_accepted)


def tell_stale(verb: str, what: str, token: str, seen: str, was_accepted: bool) -> None:
    tell("stale", verb=verb, what=what, token=token, seen=seen, was_accepted=was_accepted)


class Orders:
    """Passes each order, a line of JSON from the parent process, to the function that is listed for its field `do`.

    An order without such a function is ignored. Ends this process when the parent process has ended.
    """

    def __init__(self, listeners: Mapping[str, Callable[[dict[str, Any]], None]]) -> None:
        self._listeners = listeners
        self._rest = b""

    def hear(self) -> None:
        """Read the orders on stdin, and pass each to its listener. Call it when stdin can be read."""
        data = os.read(0, LINE_BYTES_MAX)
        if not data:
            os._exit(0)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            order = json.loads(line)
            if (listener := self._listeners.get(order["do"])) is not None:
                listener(order)


class Windows:
    """Lets the contender stand still at windows. A window is a moment between a check and a write.

    On order, the contender reports that it is at the window and waits there, and the parent process freezes it there.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._waiting: dict[int, asyncio.Future[str]] = {}

    async def stand(self, number: int, role: str, moment: str, **what: Any) -> str:
        """Report this window and wait for the order to go on, or until the limit.

        Returns a text that names who has taken over meanwhile; empty if nobody has.
        """
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

    def go(self, order: dict[str, Any]) -> None:
        going = self._waiting.get(order["window"])
        if going is not None and not going.done():
            going.set_result(order["taken"])
