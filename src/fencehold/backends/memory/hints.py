"""Hints in memory: whoever changes a row calls all who listen, each on its own event loop."""

from __future__ import annotations

import asyncio
import contextlib

from fencehold.ports.wakeup import Hint


class MemoryHints:
    """Hints (calls that say that something has changed) for one listener of a memory store.

    `relays` is the store's list of functions to call at each change. `listen` adds a function for each hint of this
    listener, which passes the call to the listener's event loop; `close` removes them.
    """

    def __init__(self, relays: list[Hint]) -> None:
        self._relays = relays
        self._mine: list[Hint] = []

    def on_hint(self, hint: Hint) -> None:
        loop = asyncio.get_running_loop()

        def relay(what: str, name: str) -> None:
            with contextlib.suppress(RuntimeError):  # that loop has ended
                loop.call_soon_threadsafe(hint, what, name)

        self._mine.append(relay)

    async def listen(self, limit_s: float) -> bool:
        self._relays += [relay for relay in self._mine if relay not in self._relays]
        return True

    def close(self) -> None:
        self._relays[:] = [relay for relay in self._relays if relay not in self._mine]
