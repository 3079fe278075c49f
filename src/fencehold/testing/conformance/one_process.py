"""One of the processes of a crowd: connects clients, waits for the start, lets them work, prints what they return.

The order comes as JSON in the first line of the standard input; `part` in it names a Part: `leases.crowd:PART`.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from typing import Any

from fencehold.testing.conformance.processes import READY, Part


def named(path: str) -> Any:
    """The object at `module:name`."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


async def main() -> None:
    order = json.loads(await asyncio.to_thread(sys.stdin.readline))
    part: Part[Any] = named(f"{__package__}.{order['part']}")
    make = named(order["maker"])(order["argument"])
    clients = [await part.connected(make(), order) for _ in range(order["clients"])]
    sys.stdout.buffer.write(READY)
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.readline)
    names = [f"process {order['process']}, client {number}" for number in range(len(clients))]
    lists = await asyncio.gather(*(part.work(client, order, who) for client, who in zip(clients, names, strict=True)))
    for client in clients:
        await part.close(client)
    sys.stdout.write(json.dumps([number for numbers in lists for number in numbers]))


if __name__ == "__main__":
    asyncio.run(main())
