"""What all parts of one store share: its backend, its clock, where facts go, and the keeper while it is open."""

from __future__ import annotations

from collections.abc import Callable

from fencehold.model.errors import ConfigurationError
from fencehold.ports.backend import Backend
from fencehold.ports.clock import Clock
from fencehold.ports.fact_table import StoreFacts
from fencehold.ports.facts import FactSink
from fencehold.ports.traces import TracePort
from fencehold.runtime.core.keeper_thread import KeeperLoop
from fencehold.runtime.election.keeper_services import KeeperServices


class StoreContext:
    """Made once per store and given to each of its parts: none of them knows the store itself.

    `keeper` and `keeper_loop` raise ConfigurationError (`store_closed`) while the store is not open.
    """

    def __init__(
        self, make_backend: Callable[[], Backend], clock: Clock, facts: FactSink, traces: TracePort, *, label: str
    ) -> None:
        self.make_backend = make_backend
        self.clock, self.facts, self.traces = clock, StoreFacts(facts), traces
        self.label = label
        self._keeper: KeeperServices | None = None
        self._keeper_loop: KeeperLoop | None = None
        self._statements_only: Backend | None = None

    @property
    def is_open(self) -> bool:
        return self._keeper is not None

    def opened(self, keeper: KeeperServices, keeper_loop: KeeperLoop) -> None:
        self._keeper, self._keeper_loop = keeper, keeper_loop

    def closed(self) -> None:
        self._keeper = self._keeper_loop = None

    def check_open(self) -> None:
        """Raises ConfigurationError (`store_closed`) unless the store is open."""
        if self._keeper is None:
            raise store_closed()

    @property
    def keeper(self) -> KeeperServices:
        """Renews and watches the leases of this store; used on `keeper_loop` only."""
        if self._keeper is None:
            raise store_closed()
        return self._keeper

    @property
    def keeper_loop(self) -> KeeperLoop:
        if self._keeper_loop is None:
            raise store_closed()
        return self._keeper_loop

    @property
    def backend(self) -> Backend:
        """A backend that makes outboxes and items, each on a connection of its own. It is never opened itself."""
        if self._statements_only is None:
            self._statements_only = self.make_backend()
        return self._statements_only


def store_closed() -> ConfigurationError:
    return ConfigurationError(
        "The store is not open.",
        hint="Use `async with fencehold.connect(...) as store:` or `await store.open()`.",
        code="store_closed",
    )
