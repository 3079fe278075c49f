"""Real processes that use one store at once: how the test starts them, and what each of them does.

Each process gets its order as JSON in the first line of its standard input. The order's field `part` names a Part, such
as `leases.crowd:PART`.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fencehold.ports.backend import Backend
from fencehold.testing.harness import Harness

C = TypeVar("C")
Order = dict[str, Any]
READY = b"ready\n"


@dataclass(frozen=True)
class Part(Generic[C]):
    """What each process does: `connected` connects a client, `work` does what is ordered, `close` closes the client."""

    connected: Callable[[Backend, Order], Awaitable[C]]
    work: Callable[[C, Order, str], Awaitable[list[int]]]
    close: Callable[[C], Awaitable[None]]


async def told_by_processes(harness: Harness, part: str, count: int, order: Order) -> list[list[int]]:
    """Start `count` processes that run this part; return for each process the numbers that it printed.

    The processes begin their work at the same moment, when all of them are connected.
    """
    order = {"part": part, "maker": harness.remote.maker, "argument": harness.remote.argument, **order}
    processes = [await _started(harness, {**order, "process": number}) for number in range(count)]
    for process in processes:
        assert process.stdout is not None
        if await process.stdout.readline() != READY:
            raise AssertionError((await process.communicate())[1].decode())
    return await asyncio.gather(*map(_outcome, processes))


async def _started(harness: Harness, order: Order) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "fencehold.testing.conformance.processes", stdin=pipe, stdout=pipe, stderr=pipe,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},  # the harness may lie anywhere
    )  # fmt: skip
    harness.stack.push_async_callback(_end, process)
    assert process.stdin is not None
    process.stdin.write(json.dumps(order).encode() + b"\n")
    return process


async def _outcome(process: asyncio.subprocess.Process) -> list[int]:
    """Let the process begin its work, and return the numbers that it prints at its end.

    Fails if its exit code is not 0.
    """
    stdout, stderr = await process.communicate(b"go\n")
    assert process.returncode == 0, stderr.decode()
    return [int(number) for number in json.loads(stdout)]


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the process if it still runs, however the test ended."""
    if process.returncode is None:
        process.kill()
        await process.communicate()


# In the process


async def take_part() -> None:
    """Do the part of this process: connect clients, wait for the start, let the clients work, print their numbers."""
    order = json.loads(await asyncio.to_thread(sys.stdin.readline))
    part: Part[Any] = _named(f"{__package__}.{order['part']}")
    make = _named(order["maker"])(order["argument"])
    clients = [await part.connected(make(), order) for _ in range(order["clients"])]
    sys.stdout.buffer.write(READY)
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.readline)
    names = [f"process {order['process']}, client {number}" for number in range(len(clients))]
    lists = await asyncio.gather(*(part.work(client, order, who) for client, who in zip(clients, names, strict=True)))
    for client in clients:
        await part.close(client)
    sys.stdout.write(json.dumps([number for numbers in lists for number in numbers]))


def _named(path: str) -> Any:
    """Return the object that `path` names as `module:name`."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


if __name__ == "__main__":
    asyncio.run(take_part())
