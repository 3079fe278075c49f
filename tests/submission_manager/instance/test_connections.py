"""How many connections an instance has to PostgreSQL."""

import asyncio
import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from tests.submission_manager.http.parts import until
from tests.submission_manager.instance.test_instance import gateway, instance, submit

PAGE = Path(__file__).parents[3] / "docs" / "submission-manager.md"
SAID = re.compile(r"\*\*Connections\*\*: a leader has at most (\d+), a follower (\d+)")
ESTABLISHED = "01"


def open_to(port: int) -> int:
    """Established connections of this process to a port of 127.0.0.1.

    Not asked of the server: of a connection that was dropped and replaced it knows for a moment longer than we do.
    """
    ours = {opened(number) for number in os.listdir("/proc/self/fd")}
    lines = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return sum(
        1
        for _, _, remote, state, *_, inode in (line[:10] for line in lines)
        if state == ESTABLISHED and remote == f"0100007F:{port:04X}" and f"socket:[{inode}]" in ours
    )


def opened(number: str) -> str:
    """What a file descriptor leads to; empty if another thread has closed it meanwhile."""
    try:
        return os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        return ""


async def test_a_leader_under_load_has_no_more_connections_than_the_page_says(postgres_url: str):
    leads, follows = SAID.findall(PAGE.read_text("utf-8"))[0]
    port = urlsplit(postgres_url).port
    assert port is not None
    before, most = open_to(port), 0
    async with gateway() as (url, _), instance(postgres_url, url, "sm-1") as one:
        await until(lambda: one.leader.is_leader)
        work = asyncio.gather(*(submit(one, f"x{number}") for number in range(200)))
        while not work.done():
            most = max(most, open_to(port) - before)
            await asyncio.sleep(0.005)  # each look takes as long as a request
        await work
    assert int(follows) < most <= int(leads)
