"""`store.leases` for programs without an event loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from fencehold.model.durations import Duration
from fencehold.model.election.leases import Lease
from fencehold.runtime import store as _store
from fencehold.sync.background_loop import BackgroundLoop


class Leases:
    """`store.leases` without an event loop."""

    def __init__(self, loop: BackgroundLoop, store: _store.Store) -> None:
        self._loop, self._book = loop, store.leases

    def acquire(self, name: str, holder_id: str | None = None, lease: Duration = 30) -> Lease | None:
        return self._loop.run(self._book.acquire(name, holder_id, lease))

    @overload
    def renew(self, leases: Lease, lease: Duration = 30) -> Lease | None: ...
    @overload
    def renew(self, leases: Sequence[Lease], lease: Duration = 30) -> list[Lease]: ...
    def renew(self, leases: Any, lease: Duration = 30) -> Any:
        return self._loop.run(self._book.renew(leases, lease))

    @overload
    def release(self, leases: Lease) -> Lease | None: ...
    @overload
    def release(self, leases: Sequence[Lease]) -> list[Lease]: ...
    def release(self, leases: Any) -> Any:
        return self._loop.run(self._book.release(leases))

    def read(self, name: str) -> Lease | None:
        return self._loop.run(self._book.read(name))

    def ask_step_down(self, name: str, epoch: int) -> Lease | None:
        return self._loop.run(self._book.ask_step_down(name, epoch))

    def list(self, prefix: str = "") -> list[Lease]:
        return self._loop.run(self._book.list(prefix))
