"""A candidate for an application lock as a real process; commands and events are those of tests.pgleaderlock.candidate.

python -m tests.mssqlleaderlock.candidate URL --name A --lock job --health 0.5 --retry 0.2 ...
"""

from __future__ import annotations

import asyncio

from mssqlleaderlock import FixedInterval, LeaderLock
from tests.pgleaderlock.candidate import Candidate, options_of

WRITE_SQL = "INSERT INTO counted (holder, epoch) VALUES (?, ?)"


async def main() -> None:
    options = options_of(("--lock", "job"))
    lock = LeaderLock(
        options.dsn, options.lock, retry_strategy=FixedInterval(options.retry), health_interval_s=options.health,
        fencing_name=options.fencing,
    )  # fmt: skip
    await Candidate(lock, options, WRITE_SQL).run()


if __name__ == "__main__":
    asyncio.run(main())
