"""Ctrl-C inside a handler of items ends the program, and nothing else is printed."""

import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, sys, fencehold

together = int(sys.argv[2])
inside, all_inside = [], asyncio.Event()

async def interrupted(item):
    inside.append(item)
    if len(inside) == together:
        all_inside.set()
    await all_inside.wait()
    raise KeyboardInterrupt

async def main():
    async with fencehold.connect(sys.argv[1]) as store:
        items = store.items("n")
        await store.init()
        for number in range(together):
            await items.put(f"{number}", state="S", document={})
        await items.process("S", interrupted).run()

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("together", [1, 8])
def test_an_interrupt_in_a_handler_ends_the_program_without_another_word(url: str, together: int) -> None:
    """With eight at once the store is being asked for the others when the first one ends the event loop."""
    command = [sys.executable, "-c", PROGRAM, url, str(together)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "interrupted\n", "")
