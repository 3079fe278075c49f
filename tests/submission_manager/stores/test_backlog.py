"""What waits beyond its time, as each database counts it."""

import datetime as dt

from submission_manager.model.intents import Backlog
from tests.submission_manager.stores.scene import LIMIT_S, ONE_SHOT, SOON, Scene, scene

LATE_S = 30
LONG_AGO = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)


async def backlog(at: Scene, rows_max: int = 100) -> Backlog:
    return await at.store.attempts.backlog(LATE_S, rows_max, LIMIT_S)


def make_due(at: Scene, intent_id: str, when: dt.datetime = LONG_AGO) -> None:
    at.sql(
        "UPDATE submission_intents SET next_attempt_at = :due WHERE intent_id = :id", due=at.stamp(when), id=intent_id
    )


async def test_nothing_waits_where_nothing_is_due(url):
    async with scene(url) as at:
        assert await backlog(at) == Backlog(0, 0.0, 0)
        await at.submit("later")
        make_due(at, "later", dt.datetime(2100, 1, 1, tzinfo=dt.UTC))
        assert await backlog(at) == Backlog(0, 0.0, 0)


async def test_what_is_due_for_long_is_overdue_and_what_is_due_just_now_is_not(url):
    async with scene(url) as at:
        for name in ("old", "older", "new"):
            await at.submit(name)
        make_due(at, "old", LONG_AGO + dt.timedelta(days=365))
        make_due(at, "older")
        found = await backlog(at)
        assert (found.overdue, found.past_deadline) == (2, 0)
        years = (dt.datetime.now(dt.UTC) - LONG_AGO).total_seconds()
        assert abs(found.oldest_due_s - years) < 3600
        assert (await backlog(at, rows_max=1)).overdue == 1


async def test_what_is_past_its_deadline_is_counted_unless_an_attempt_is_under_way_or_it_has_ended(url):
    async with scene(url) as at:
        term = await at.term()
        for name, given in (("late", SOON), ("in time", SOON), ("called", SOON), ("ended", SOON), ("free", ONE_SHOT)):
            await at.submit(name, given)
        await at.store.attempts.start(term, "called", 5.0)
        for name in ("late", "called", "ended", "free"):
            at.make_old(name)
        await at.store.attempts.start(term, "ended", 5.0)
        assert (await backlog(at)).past_deadline == 1
