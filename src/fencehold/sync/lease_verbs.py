"""`store.leases` for programs without an event loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from fencehold.model.durations import Duration
from fencehold.model.election.rules import Lease
from fencehold.runtime import store as _store
from fencehold.sync.background_loop import BackgroundLoop


class Leases:
    """The low-level calls on leases, `store.leases`, for programs without an event loop.

    Each call is one statement, decided by the store's clock. A call returns a Lease if it was done, None if it was
    refused. It raises Uncertain if it is not known whether it was done, and Unavailable if the store did not answer and
    nothing was done.
    """

    def __init__(self, loop: BackgroundLoop, store: _store.Store) -> None:
        self._loop, self._book = loop, store.leases

    def acquire(self, name: str, holder_id: str | None = None, lease: Duration = 30) -> Lease | None:
        """Acquire the lease, with an epoch one higher than the highest it ever had. Returns the lease.

        Returns None while anybody holds it, this holder included, or while another session has its row locked.
        """
        return self._loop.run(self._book.acquire(name, holder_id, lease))

    @overload
    def renew(self, leases: Lease, lease: Duration = 30) -> Lease | None: ...
    @overload
    def renew(self, leases: Sequence[Lease], lease: Duration = 30) -> list[Lease]: ...
    def renew(self, leases: Any, lease: Duration = 30) -> Any:
        """Extend the leases by `lease` from now, and return them as renewed.

        A lease that has expired or that another holder has is left out of the list; for a single lease the result is
        None.
        """
        return self._loop.run(self._book.renew(leases, lease))

    @overload
    def release(self, leases: Lease) -> Lease | None: ...
    @overload
    def release(self, leases: Sequence[Lease]) -> list[Lease]: ...
    def release(self, leases: Any) -> Any:
        """End the leases now, and return them. Their rows stay, so that the epochs go on rising.

        A lease that was no longer ours is left out of the list; for a single lease the result is None.
        """
        return self._loop.run(self._book.release(leases))

    def read(self, name: str) -> Lease | None:
        """Read the lease's row, live or lapsed, and return it; None if the lease was never acquired."""
        return self._loop.run(self._book.read(name))

    def ask_step_down(self, name: str, epoch: int) -> Lease | None:
        """Ask the holder of this epoch to step down: at its next renewal, or at once if the store can notify it.

        Returns the lease. Returns None if this epoch does not hold it, or while another session has its row locked.
        """
        return self._loop.run(self._book.ask_step_down(name, epoch))

    def list(self, prefix: str = "") -> list[Lease]:
        """Return all lease rows whose name begins with `prefix`, sorted by name."""
        return self._loop.run(self._book.list(prefix))
