"""`store.leases`: the low-level verbs, for programs that decide themselves when to acquire and renew."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, overload

from fencehold.model import names
from fencehold.model.durations import Duration, seconds
from fencehold.model.election.rules import Ask, Busy, Lease, TermKey
from fencehold.model.errors import ConfigurationError, Unavailable
from fencehold.ports.backend import Backend
from fencehold.ports.leases import Answer, LeasePort
from fencehold.runtime.context import StoreContext

LIMIT_S = 5.0
BUSY_PAUSE_S = 0.02
BUSY = Busy()

Many = list[Lease]

Verb = Callable[[Sequence[TermKey], float], Coroutine[Any, Any, list[Answer]]]


class LeaseVerbs:
    """The low-level calls on leases. Each is one statement, decided by the store's clock.

    A call returns a Lease if it was done, None if it was refused. It raises Uncertain if it is not known whether it was
    done, and Unavailable if the store did not answer and nothing was done.
    """

    def __init__(self, context: StoreContext, default_holder_id: str) -> None:
        self._context = context
        self._holder_id = default_holder_id
        self._limit_s = LIMIT_S
        self._backends: dict[asyncio.AbstractEventLoop, Backend] = {}

    async def acquire(self, name: str, holder_id: str | None = None, lease: Duration = 30) -> Lease | None:
        """Acquire the lease, with an epoch one higher than the highest it ever had. Returns the lease.

        Returns None while anybody holds it, this holder included, or while another session has its row locked.
        """
        ask = Ask(
            names.lease_name(name), names.holder_id(holder_id or self._holder_id), seconds(lease, "lease"),
            secrets.token_hex(16),
        )  # fmt: skip
        answer = await self._port().acquire(ask, self._limit_s)
        return answer if isinstance(answer, Lease) else None

    @overload
    async def renew(self, leases: Lease, lease: Duration = 30) -> Lease | None: ...
    @overload
    async def renew(self, leases: Sequence[Lease], lease: Duration = 30) -> list[Lease]: ...
    async def renew(self, leases: Lease | Sequence[Lease], lease: Duration = 30) -> Lease | list[Lease] | None:
        """Extend the leases by `lease` from now, and return them as renewed.

        A lease that has expired or that another holder has is left out of the list; for a single lease the result is
        None.
        """
        keys = self._keys(leases, seconds(lease, "lease"))
        return _accepted(leases, await self._settled(self._port().renew, keys))

    @overload
    async def release(self, leases: Lease) -> Lease | None: ...
    @overload
    async def release(self, leases: Sequence[Lease]) -> list[Lease]: ...
    async def release(self, leases: Lease | Sequence[Lease]) -> Lease | list[Lease] | None:
        """End the leases now, and return them. Their rows stay, so that the epochs go on rising.

        A lease that was no longer ours is left out of the list; for a single lease the result is None.
        """
        keys = self._keys(leases, 1.0)
        return _accepted(leases, await self._settled(self._port().release, keys))

    async def read(self, name: str) -> Lease | None:
        """Read the lease's row, live or lapsed, and return it; None if the lease was never acquired."""
        rows = await self._port().read([names.lease_name(name)], self._limit_s)
        return rows.get(name)

    async def ask_step_down(self, name: str, epoch: int) -> Lease | None:
        """Ask the holder of this epoch to step down: at its next renewal, or at once if the store can notify it.

        Returns the lease. Returns None if this epoch does not hold it, or while another session has its row locked.
        """
        answer = await self._port().ask_step_down(names.lease_name(name), epoch, self._limit_s)
        return answer if isinstance(answer, Lease) else None

    async def close(self) -> None:
        while self._backends:
            await self._backends.popitem()[1].close()

    def _port(self) -> LeasePort:
        """Return the port for the leases, on a connection for the caller's event loop.

        Calls through the keeper's thread would be a third slower.
        """
        self._context.check_open()
        loop = asyncio.get_running_loop()
        if loop not in self._backends:
            self._backends[loop] = self._context.make_backend()
        return self._backends[loop].leases

    def _keys(self, leases: Any, lease_s: float) -> Sequence[TermKey]:
        given = [leases] if isinstance(leases, Lease) else leases
        wrong = [type(item).__name__ for item in given if not isinstance(item, Lease)]
        if wrong:
            hint = "Give what acquire() returned."
            raise ConfigurationError(f"A {wrong[0]} is no Lease.", hint=hint, code="bad_lease")
        return [item.key(lease_s) for item in given]

    async def _settled(self, verb: Verb, keys: Sequence[TermKey]) -> list[Answer]:
        """Call the verb for these keys, and again for rows that another session has locked.

        Returns one answer for each key. Raises Unavailable (`busy`) if a row is still locked after the limit.
        """
        answers: dict[TermKey, Answer] = {}
        end_s = asyncio.get_running_loop().time() + self._limit_s
        while open_keys := [key for key in keys if isinstance(answers.get(key, BUSY), Busy)]:
            if asyncio.get_running_loop().time() > end_s:
                raise Unavailable("Another session keeps the lease row locked; nothing was changed.", code="busy")
            if answers:
                await asyncio.sleep(BUSY_PAUSE_S)
            answers.update(zip(open_keys, await verb(open_keys, self._limit_s), strict=True))
        return [answers[key] for key in keys]

    async def list(self, prefix: str = "") -> list[Lease]:
        """Return all lease rows whose name begins with `prefix`, sorted by name."""
        if prefix != "":
            names.lease_name(str(prefix).strip() or "_")
        return await self._port().list(prefix, self._limit_s)


def _accepted(asked: Lease | Sequence[Lease], answers: Sequence[Answer]) -> Lease | Many | None:
    """Return the leases that the store accepted, as a list if a list was asked for.

    For a single lease, return the lease, or None if the store refused it.
    """
    accepted = [answer for answer in answers if isinstance(answer, Lease)]
    if isinstance(asked, Lease):
        return accepted[0] if accepted else None
    return accepted
