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


def enough_s(url: str, usual_s: float) -> float:
    """A lease that lasts for longer than the first reading of a statement, which takes some SQL Servers a second."""
    return max(usual_s, 4.0) if url.startswith("mssql:") else usual_s


async def free(items: fencehold.Items, item_id: str = "n") -> bool:
    found = await items.get(item_id)
    return found is not None and found.holder_id is None
