"""The id that tells an outbox from one of the same name in another database.

It is read once, and again if the database refuses it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from fencehold.model.errors import ConfigurationError, FenceholdError

T = TypeVar("T")


class OutboxIdentity:
    """Reads and remembers the id of one outbox. `ask` reads it from the store's own database.

    `known` has the ids of all outboxes of the store, by name, so only one of an outbox's handles has to ask.
    """

    def __init__(self, name: str, ask: Callable[[], Awaitable[str]], known: dict[str, str]) -> None:
        self._name = name
        self._ask = ask
        self._known = known

    async def get(self) -> str:
        if self._name not in self._known:
            self._known[self._name] = await self._ask()
        return self._known[self._name]

    async def given_to(self, run: Callable[[str], Awaitable[T]]) -> T:
        """Call `run` with the outbox's id, and return the result.

        If the database refuses that id because the outbox was dropped and created since, `run` is called again with the
        new id.
        """
        known = await self.get()
        try:
            return await run(known)
        except ConfigurationError as error:
            renewed = await self.after(error, known)
        return await run(renewed)

    async def after(self, refusal: ConfigurationError, known: str) -> str:
        """Read the outbox's id again after a refusal, and return the new id.

        Raises the refusal if its code is not `wrong_store`, or if the id has not changed.
        """
        if refusal.code != "wrong_store":
            raise refusal
        try:
            found = await self._ask()
        except FenceholdError:
            raise refusal from None
        self._known[self._name] = found
        if found == known:
            raise refusal
        return found
