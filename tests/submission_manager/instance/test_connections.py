"""How many connections an instance has to PostgreSQL."""

import asyncio
import re
from pathlib import Path
from typing import Any

import psycopg

from tests.submission_manager.http.parts import until
from tests.submission_manager.instance.test_instance import gateway, instance, submit

PAGE = Path(__file__).parents[3] / "docs" / "submission-manager.md"
SAID = re.compile(r"\*\*Connections\*\*: a leader has at most (\d+), a follower (\d+)")
# The server's own workers, such as autovacuum's, are in pg_stat_activity too.
OURS = """SELECT pid, application_name, state, left(query, 60) FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"""


async def test_a_leader_under_load_has_no_more_connections_than_the_page_says(postgres_url: str):
    leads, follows = SAID.findall(PAGE.read_text("utf-8"))[0]
    seen: list[list[tuple[Any, ...]]] = [[]]
    async with gateway() as (url, _), instance(postgres_url, url, "sm-1") as one:
        await until(lambda: one.leader.is_leader)
        async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as watcher:
            work = asyncio.gather(*(submit(one, f"x{number}") for number in range(200)))
            while not work.done():
                seen.append(await (await watcher.execute(OURS)).fetchall())
        await work
    most = max(seen, key=len)
    assert int(follows) < len(most) <= int(leads), most
