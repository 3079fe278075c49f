"""What tells an outbox from one of the same name in another database: asked of the store once, and when refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from fencehold.model.errors import ConfigurationError, FenceholdError

T = TypeVar("T")


class OutboxIdentity:
    """`ask` reads it from the store's own database, never from a caller's connection. `known` are those of all
    outboxes of the store, by name: one handle asks for all."""

    def __init__(self, name: str, ask: Callable[[], Awaitable[str]], known: dict[str, str]) -> None:
        self._name = name
        self._ask = ask
        self._known = known

    async def get(self) -> str:
        if self._name not in self._known:
            self._known[self._name] = await self._ask()
        return self._known[self._name]

    async def given_to(self, run: Callable[[str], Awaitable[T]]) -> T:
        """`run(id)`, and once more if it was refused because the outbox has been dropped and made anew meanwhile."""
        known = await self.get()
        try:
            return await run(known)
        except ConfigurationError as error:
            renewed = await self.after(error, known)
        return await run(renewed)

    async def after(self, refusal: ConfigurationError, known: str) -> str:
        """The id as it is now. Raises the refusal if it is another one than `wrong_store`, or the id is the same."""
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
