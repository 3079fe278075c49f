"""A forked child uses nothing of its parent's: it gets an error at once, and the parent goes on."""

import os
import signal
import sqlite3
from collections.abc import Callable

import pytest

import fencehold
import fencehold.sync


def in_a_child(refused: Callable[[], object]) -> bool:
    """Whether it raised one of our errors there, within 20 s."""
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            refused()
        except fencehold.FenceholdError:
            os._exit(0)
        except BaseException:
            os._exit(2)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0


@pytest.mark.fault("fork", "fence", "any")
async def test_a_forked_child_cannot_fence_a_write_with_its_parents_term(sqlite_url: str) -> None:
    async with fencehold.connect(sqlite_url) as store:
        await store.init()
        async with store.leader("x", lease="60s") as leader:
            assert await leader.wait_for_leadership(10)
            term = leader.term
            assert term is not None
            path = sqlite_url.removeprefix("sqlite:///")

            def write() -> None:
                with sqlite3.connect(path) as connection:
                    connection.execute("BEGIN IMMEDIATE")
                    term.fence(connection)

            assert in_a_child(write)
            write()


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
@pytest.mark.fault("fork", "outbox")
def test_a_forked_child_cannot_complete_what_its_parent_claimed(database: str, request: pytest.FixtureRequest) -> None:
    with fencehold.sync.connect(request.getfixturevalue(f"{database}_url")) as store:
        outbox = store.outbox(lease="60s")
        store.init()
        outbox.add("x", {})
        claims = outbox.claim(1, "parent")
        assert in_a_child(lambda: outbox.complete(claims))
        assert len(outbox.complete(claims)) == 1
