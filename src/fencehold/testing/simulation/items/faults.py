"""Faults of items: of their holders, and of the rules by which a store answers them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from fencehold.backends.memory.items import ItemShelf
from fencehold.model.errors import LeaseLost
from fencehold.model.items import items
from fencehold.model.items.items import RULES, Row, Rule, Verb, always, is_holder, write
from fencehold.runtime.items.context import ItemsContext
from fencehold.runtime.items.item import Item
from fencehold.runtime.items.keeper import ItemRenewals
from fencehold.runtime.items.lease import GONE, LEFT
from fencehold.testing.simulation.faults import OF_HEARTBEATS, OF_STALLS, OF_TRUST, Faults, Patch, answering


def _unchecked(verb: Verb) -> tuple[Patch, ...]:
    """Anybody may do it to an item that somebody holds."""
    changed = (replace(r, when=always) if (r.source, r.on) == (Row.LIVE, verb) else r for r in RULES)
    return ((items, "RULES", tuple(changed)),)


async def _break_later(item: Item[Any]) -> asyncio.CancelledError | None:
    if item._lease.ended_because not in GONE:
        item._lease.end(LEFT)
        item._context.start_breaking([item._lease])
    return None


async def _leave_quietly(item: Item[Any], *how: Any) -> None:
    with suppress(LeaseLost):
        await _LEAVE(item, *how)


@contextmanager
def _asking_freely(context: ItemsContext, kind: str, holder_id: str, item_id: str) -> Iterator[None]:
    yield


_LEAVE = Item.__aexit__

FAULTS: Faults = {
    **OF_TRUST,
    **OF_HEARTBEATS,
    **OF_STALLS,
    "save_unchecked": _unchecked(Verb.SAVE),
    "save_after_expiry": ((items, "RULES", (*RULES, Rule(Row.FREE, Verb.SAVE, is_holder, Row.FREE, write))),),
    "taken_while_held": _unchecked(Verb.ACQUIRE),
    "token_repeats": ((ItemShelf, "next_token", answering(7)),),
    "break_not_awaited": ((Item, "_give_back", _break_later),),
    "lost_body_runs_on": ((Item, "_ended", answering(None)),),
    "loss_not_raised": ((Item, "__aexit__", _leave_quietly),),
    "taken_from_own_body": ((ItemsContext, "asking", _asking_freely),),
    "processing_without_limit": ((ItemRenewals, "_max_s", answering(math.inf)),),
}
