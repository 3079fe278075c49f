"""For long-running programs on a store: checks of settings, waiting for a database, clocks, texts without secrets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from fencehold.connect import label, scheme
from fencehold.model import names
from fencehold.model.durations import Duration, seconds
from fencehold.model.election.settings import leader_settings
from fencehold.model.errors import redact
from fencehold.model.names import default_holder_id
from fencehold.ports.clock import Clock
from fencehold.ports.fact_table import OutageFacts
from fencehold.ports.facts import FactSink
from fencehold.runtime.core.clock import BootClock
from fencehold.runtime.core.repeated_failures import Outage

__all__ = [
    "BootClock",
    "Clock",
    "check_leader",
    "default_holder_id",
    "label",
    "redact",
    "scheme",
    "seconds",
    "until_answered",
]

T = TypeVar("T")


def check_leader(
    name: str = "leader",
    *,
    holder_id: str | None = None,
    lease: Duration = 30,
    renew_every: Duration | None = None,
    acquire_every: Duration | None = None,
) -> None:
    """Raise ConfigurationError if `store.leader` would refuse these arguments.

    A program uses it to check its settings before it opens anything. One message names every problem of the durations.
    """
    names.lease_name(name)
    if holder_id is not None:
        names.holder_id(holder_id)
    leader_settings(lease=lease, renew_every=renew_every, acquire_every=acquire_every)


async def until_answered(ask: Callable[[], Awaitable[T]], facts: FactSink, clock: Clock | None = None) -> T:
    """Call `ask` until the database answers, and return its result; pauses for at most 2 s after each failure.

    Reports `store_unreachable` at the first failure with each error code and then once a minute, and at the end
    `store_answers`. Raises ConfigurationError at once, because waiting does not mend it.
    """
    return await Outage(OutageFacts(facts), clock or BootClock()).wait_for(ask)
