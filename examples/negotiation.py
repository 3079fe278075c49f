"""Contract negotiations as a state machine: three processors, one of them killed half-way, no step lost or repeated.

    python examples/negotiation.py                         # SQLite, in a temporary file
    python examples/negotiation.py postgresql://app@db/app  # the database you have

Every negotiation goes REQUESTED -> OFFERED -> AGREED -> VERIFIED -> FINALIZED. A processor takes it under a lease, does
one step and saves the next state; the save is refused unless the lease still holds. So when a processor dies, its
negotiations are free again when their leases end, and another goes on from the last state that was saved.
"""

import asyncio
import os
import signal
import sys
import tempfile
import uuid
from pathlib import Path

import fencehold

STEPS = {"REQUESTED": "OFFERED", "OFFERED": "AGREED", "AGREED": "VERIFIED", "VERIFIED": "FINALIZED"}
WHOLE_TRAIL = [*STEPS, "FINALIZED"]
NEGOTIATIONS = 60
PROCESSORS = 3
LEASE = "5s"
STEP_S = 0.02  # what a step would cost in earnest


async def processor(url: str, kind: str) -> None:
    """One process: a processor for each state, until SIGTERM."""

    async def advance(item: fencehold.Item) -> None:
        await asyncio.sleep(STEP_S)
        state = STEPS[item.state]
        trail = [*item.document["trail"], state]
        await item.save(state=state, document={"trail": trail})  # only while we hold it, else LeaseLost

    async with fencehold.connect(url) as store:
        items = store.items(kind, lease=LEASE)
        processors = [items.process(state, advance, concurrency=5, poll_every=0.2) for state in STEPS]

        def stop() -> None:
            for one in processors:
                one.stop()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
        await asyncio.gather(*(one.run() for one in processors))


async def supervise(url: str) -> int:
    kind = f"negotiation-{uuid.uuid4().hex[:8]}"
    async with fencehold.connect(url) as store:
        items = store.items(kind, lease=LEASE)
        await store.init()
        for number in range(NEGOTIATIONS):
            await items.put(f"n-{number:03}", state="REQUESTED", document={"trail": ["REQUESTED"]})
        started = [await start(url, kind) for _ in range(PROCESSORS)]
        try:
            await until_finalized(items, NEGOTIATIONS // 4)
            print(f"kill -9 of processor {started[0].pid}, with what it holds", flush=True)
            started[0].kill()
            await started[0].wait()  # or a second signal could take its end away from asyncio, which then complains
            await until_finalized(items, NEGOTIATIONS)
        finally:
            await stop(started)
        return verdict([view.document["trail"] for view in await items.find("FINALIZED", limit=NEGOTIATIONS + 1)])


async def start(url: str, kind: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(sys.executable, __file__, "--processor", url, kind)


async def stop(started: list[asyncio.subprocess.Process]) -> None:
    for process in started:
        if process.returncode is None:
            process.terminate()
    await asyncio.gather(*(process.wait() for process in started))


async def until_finalized(items: fencehold.Items, count: int) -> None:
    while (done := len(await items.find("FINALIZED", limit=NEGOTIATIONS + 1))) < count:
        print(f"{done} of {NEGOTIATIONS} finalized", flush=True)
        await asyncio.sleep(0.3)


def verdict(trails: list[list[str]]) -> int:
    lost = NEGOTIATIONS - len(trails)
    skipped = sum(1 for trail in trails for state in WHOLE_TRAIL if state not in trail)
    repeated = sum(len(trail) - len(set(trail)) for trail in trails)
    disordered = sum(trail != WHOLE_TRAIL for trail in trails)
    print(f"finalized {len(trails)}, lost {lost}, states skipped {skipped}, states repeated {repeated}")
    return 1 if lost or skipped or repeated or disordered else 0


def main() -> int:
    if sys.argv[1:2] == ["--processor"]:
        asyncio.run(processor(*sys.argv[2:4]))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        url = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("FENCEHOLD_DSN") or f"sqlite:///{Path(folder)}/n.db"
        return asyncio.run(supervise(url))


if __name__ == "__main__":
    sys.exit(main())
