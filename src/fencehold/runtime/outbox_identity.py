"""What tells an outbox from one of the same name in another database: asked of the store once, and when refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from fencehold.model.errors import ConfigurationError, FenceholdError

T = TypeVar("T")


class OutboxIdentity:
    """`ask` reads it from the store's own database, never from a caller's connection."""

    def __init__(self, ask: Callable[[], Awaitable[str]]) -> None:
        self._ask = ask
        self._known: str | None = None

    async def get(self) -> str:
        if self._known is None:
            self._known = await self._ask()
        return self._known

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
            self._known = await self._ask()
        except FenceholdError:
            raise refusal from None
        if self._known == known:
            raise refusal
        return self._known
