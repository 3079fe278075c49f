"""Real processes that use one store at once: starting them, and being one of them."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from fencehold.ports.backend import Backend
from fencehold.testing.harness import Harness

C = TypeVar("C")
Order = dict[str, Any]
READY = b"ready\n"


async def told_by_processes(harness: Harness, module: str, count: int, order: Order) -> list[list[int]]:
    """Start `count` processes of this module of the suite with this order; return the numbers that each printed.

    They begin at the same moment, when all of them are connected.
    """
    order = {"maker": harness.remote.maker, "argument": harness.remote.argument, **order}
    processes = [await _started(harness, module, {**order, "process": number}) for number in range(count)]
    for process in processes:
        assert process.stdout is not None
        if await process.stdout.readline() != READY:
            raise AssertionError((await process.communicate())[1].decode())
    return await asyncio.gather(*map(_outcome, processes))


async def _started(harness: Harness, module: str, order: Order) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", f"fencehold.testing.conformance.{module}", stdin=pipe, stdout=pipe, stderr=pipe,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},  # the harness may lie anywhere
    )  # fmt: skip
    harness.stack.push_async_callback(_end, process)
    assert process.stdin is not None
    process.stdin.write(json.dumps(order).encode() + b"\n")
    return process


async def _outcome(process: asyncio.subprocess.Process) -> list[int]:
    """Let the process begin, and return the numbers that it prints at its end."""
    stdout, stderr = await process.communicate(b"go\n")
    assert process.returncode == 0, stderr.decode()
    return [int(number) for number in json.loads(stdout)]


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the process if it still runs, however the test ended."""
    if process.returncode is None:
        process.kill()
        await process.communicate()


async def take_part(
    connected: Callable[[Backend, Order], Awaitable[C]],
    work: Callable[[C, Order, str], Awaitable[list[int]]],
    close: Callable[[C], Awaitable[None]],
) -> None:
    """Be one of the processes: connect as many clients as ordered, wait for the start, work, print all the numbers."""
    order: Order = json.loads(await asyncio.to_thread(sys.stdin.readline))
    module, _, maker = order["maker"].partition(":")
    make = getattr(importlib.import_module(module), maker)(order["argument"])
    clients = [await connected(make(), order) for _ in range(order["clients"])]
    sys.stdout.buffer.write(READY)
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.readline)
    names = [f"process {order['process']}, client {number}" for number in range(len(clients))]
    lists = await asyncio.gather(*(work(client, order, who) for client, who in zip(clients, names, strict=True)))
    for client in clients:
        await close(client)
    sys.stdout.write(json.dumps([number for numbers in lists for number in numbers]))
