"""One leader among any number of these programs: PG_DSN=postgresql://... python examples/pgleaderlock_usage.py"""

import asyncio
import logging
import os
import sys

from pgleaderlock import LeaderLock

logging.basicConfig(level=logging.INFO, format="%(name)s | %(message)s")
logger = logging.getLogger("example")

dsn = os.environ.get("PG_DSN") or sys.exit("Set PG_DSN to a PostgreSQL server of yours: postgresql://user@host/db")
lock = LeaderLock(dsn=dsn, key1=1, key2=100)


@lock.on_acquired
def handle_acquired() -> None:
    logger.info("I am the leader now")


@lock.on_lost
def handle_lost() -> None:
    logger.info("Leadership lost, stopping work")


async def main() -> None:
    async with lock:
        await lock.wait_for_leadership()
        logger.info("leader work is done here, while is_leader is %s", lock.is_leader)


if __name__ == "__main__":
    asyncio.run(main())
