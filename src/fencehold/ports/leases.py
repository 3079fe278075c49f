"""The six verbs of named leases, each one statement with one time limit. The rules are in model/election/rules.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fencehold.model.election.rules import Ask, Busy, Lease, Refusal, TermKey

Answer = Lease | Refusal | Busy


class LeasePort(Protocol):
    """The verbs of named leases: Lease if a verb was executed, Refusal if it was refused, Busy if neither yet.

    Busy: another session had locked the row; nothing was changed, ask again. If the store does not answer, a verb
    raises Unavailable (not executed) or Uncertain (perhaps executed).
    """

    async def acquire(self, ask: Ask, limit_s: float) -> Answer: ...

    async def renew(self, keys: Sequence[TermKey], limit_s: float) -> list[Answer]: ...

    async def release(self, keys: Sequence[TermKey], limit_s: float) -> list[Answer]: ...

    async def read(self, names: Sequence[str], limit_s: float) -> dict[str, Lease]: ...

    async def list(self, prefix: str, limit_s: float) -> list[Lease]: ...

    async def ask_step_down(self, name: str, epoch: int, limit_s: float) -> Answer: ...
