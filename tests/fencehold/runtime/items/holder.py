"""A holder as a real process, to be frozen or killed; it does what it reads and tells what came of it as JSON lines.

python -m tests.fencehold.runtime.items.holder URL hold --id n --lease 500ms
                                                   acquires the item, then obeys: save delete renew break
python -m tests.fencehold.runtime.items.holder URL process --lease 500ms
                                                   moves items from A to B, each after a line "go"
"""

import argparse
import asyncio
import json
import sys
import threading
from typing import Any

import fencehold

KIND = "negotiation"


def tell(event: str, **fields: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


class Holder:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.lines: asyncio.Queue[str] = asyncio.Queue()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(loop,), daemon=True).start()
        async with fencehold.connect(self.options.url) as store:
            items = store.items(KIND, lease=self.options.lease)
            if self.options.does == "hold":
                await self._hold(items)
            else:
                await items.process("A", self._handle, poll_every="50ms", concurrency=1).run()

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(self.lines.put_nowait, line.strip())

    async def _hold(self, items: fencehold.Items) -> None:
        await items.get(self.options.id)  # connected: the lease counts from when it is asked for
        item = await items.acquire(self.options.id)
        tell("acquired", token=item.token)
        while (word := await self.lines.get()) != "stop":
            try:
                answer = await self._do(word, items, item)
            except fencehold.FenceholdError as error:
                tell("answered", verb=word, code=error.code, answer=None)
            else:
                tell("answered", verb=word, code=None, answer=answer)

    async def _do(self, word: str, items: fencehold.Items, item: fencehold.Item) -> int | None:
        match word:
            case "save":
                await item.save(state="STALE", document="stale")
            case "delete":
                await items.delete(item)
            case "renew":
                return len(await items.renew([item]))
            case "break":
                await items.break_lease(item.id)
        return None

    async def _handle(self, item: fencehold.Item) -> None:
        tell("began", id=item.id, token=item.token)
        if await self.lines.get() == "go":
            await item.save(state="B", document=[*item.document, "moved"])
            tell("moved", id=item.id)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("does", choices=["hold", "process"])
    parser.add_argument("--id", default="n")
    parser.add_argument("--lease", default="500ms")
    asyncio.run(Holder(parser.parse_args()).run())


if __name__ == "__main__":
    main()
