"""One small question to an outbox: does the database answer, and is the table there?"""

from __future__ import annotations

from fencehold.model.errors import Unavailable
from fencehold.ports.events import Events, Filter

#: No event has this tracking id: the question is a look into an index, whatever the table holds.
NOBODYS = Filter(tracking_ids=("00000000-0000-0000-0000-000000000000",))


async def probe(events: Events, limit_s: float) -> None:
    """Raises what is wrong."""
    await events.admin.find(NOBODYS, 1, limit_s)


def starting() -> Unavailable:
    return Unavailable("It has not begun yet, or waits for the database.", code="starting")


def stopping() -> Unavailable:
    return Unavailable("It is stopping, or has ended.", code="stopping")
