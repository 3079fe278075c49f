"""What the tests of items share."""

from collections.abc import Coroutine
from typing import Any

import fencehold


async def error_of(work: Coroutine[Any, Any, Any]) -> BaseException:
    """What it raises, a cancel included; it is an error if it raises nothing."""
    try:
        await work
    except BaseException as error:
        return error
    raise AssertionError("it raised nothing")


async def free(items: fencehold.Items, item_id: str = "n") -> bool:
    found = await items.get(item_id)
    return found is not None and found.holder_id is None
