"""Ctrl-C inside a handler of items ends the program, and nothing else is printed."""

import subprocess
import sys

PROGRAM = """
import asyncio, sys, fencehold

async def interrupted(item):
    raise KeyboardInterrupt

async def main():
    async with fencehold.connect(sys.argv[1]) as store:
        items = store.items("n")
        await store.init()
        await items.put("a", state="S", document={})
        await items.process("S", interrupted).run()

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_in_a_handler_ends_the_program_without_another_word(url: str) -> None:
    command = [sys.executable, "-c", PROGRAM, url]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "interrupted\n", "")
