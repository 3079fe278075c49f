"""Ctrl-C inside a handler of events ends the program, and asyncio finds nothing to complain of."""

import subprocess
import sys

PROGRAM = """
import asyncio, sys, fencehold

TOGETHER = 8
inside, all_inside = [], asyncio.Event()

async def interrupted(event):
    inside.append(event)
    if len(inside) == TOGETHER:
        all_inside.set()
    await all_inside.wait()
    raise KeyboardInterrupt

async def main():
    async with fencehold.connect(sys.argv[1]) as store:
        outbox = store.outbox()
        await store.init()
        await outbox.add_many([("a", {})] * TOGETHER)
        await outbox.worker(interrupted, concurrency=TOGETHER).run()

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted")
"""
#: How asyncio begins what it prints of a task whose error nobody asked for, and of one that fails as it is cancelled.
COMPLAINTS = ("Task exception was never retrieved", "unhandled exception during")


def test_an_interrupt_in_a_handler_ends_the_program_without_a_word_of_asyncio(url: str) -> None:
    command = [sys.executable, "-c", PROGRAM, url]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "interrupted\n")
    assert [words for words in COMPLAINTS if words in ended.stderr] == []
