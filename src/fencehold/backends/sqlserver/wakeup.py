"""SQL Server notifies nobody of a change: followers notice it when they poll, and at the known expiry."""

from __future__ import annotations

from fencehold.ports.wakeup import Hint


class NoWakeup:
    def on_hint(self, hint: Hint) -> None:
        return None

    async def listen(self, limit_s: float) -> bool:
        return False
