"""The names that only type checkers look into can be used by a program that runs."""

from __future__ import annotations

from typing import Any, TypedDict, get_type_hints

import fencehold
from fencehold import sync


class Order(TypedDict):
    id: int


async def handle(event: fencehold.Event[Order], item: fencehold.Item[Order], sent: fencehold.Json) -> None: ...


def test_the_types_of_a_handler_can_be_looked_up() -> None:
    found = get_type_hints(handle)
    assert found["event"] == fencehold.Claim[Order]
    assert found["sent"] is Any


def test_an_event_takes_no_more_room_for_the_type_of_its_payload() -> None:
    event = fencehold.Event[Order](7, "", "order.created", '{"id": 7}')
    assert event.payload == {"id": 7}
    assert not hasattr(event, "__dict__")


def test_every_public_name_is_there() -> None:
    assert [name for module in (fencehold, sync) for name in module.__all__ if not hasattr(module, name)] == []
