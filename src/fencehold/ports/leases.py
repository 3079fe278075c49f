"""Named leases: six verbs, each one statement and one limit. The rules are in model/election/rules.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fencehold.model.election.rules import Ask, Busy, Lease, Refusal, TermKey

Answer = Lease | Refusal | Busy


class LeasePort(Protocol):
    """A verb returns a Lease if it was executed, a Refusal if it was refused, Busy if that is not yet decided.

    Without an answer it raises Uncertain or Unavailable.
    """

    async def acquire(self, ask: Ask, limit_s: float) -> Answer: ...

    async def renew(self, keys: Sequence[TermKey], limit_s: float) -> list[Answer]: ...

    async def release(self, keys: Sequence[TermKey], limit_s: float) -> list[Answer]: ...

    async def read(self, names: Sequence[str], limit_s: float) -> dict[str, Lease]: ...

    async def list(self, prefix: str, limit_s: float) -> list[Lease]: ...

    async def ask_step_down(self, name: str, epoch: int, limit_s: float) -> Answer: ...
