"""A target whose backlog is full takes no new intent, says when to come again, and answers what it has as ever."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from fencehold import Unavailable
from submission_manager.http import admission
from submission_manager.model.intents import NewIntent, Status
from submission_manager.ports import Submitted
from tests.submission_manager.http.parts import Running, running, until

TARGET = "sms.realtime"


@asynccontextmanager
async def full(most: int = 3) -> AsyncIterator[Running]:
    """As many of the target are pending as it may have."""
    async with running(backlogs_max={TARGET: most}) as at:
        await at.app.admission._look()
        for n in range(most):
            assert (await at.submit(f"before{n}")).status_code == 200
        yield at


def told(at: Running, event: str) -> list[dict[str, object]]:
    return [fields for name, fields in at.facts.told if name == event]


async def test_beyond_its_limit_a_target_is_refused_with_a_time_to_come_again_and_nothing_is_stored():
    async with full() as at:
        answer = await at.submit("one more")
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "5")
        error = answer.json()["error"]
        assert (error["code"], error["details"]) == ("backlog_full", {"submissionTarget": TARGET, "maxBacklog": 3})
        assert "one more" not in at.intake.rows
        assert b"submission_backlog_refusals_total 1.0" in at.metrics.exposition()[0]


async def test_what_is_stored_already_is_never_refused():
    async with full() as at:
        again = await at.submit("before1")
        assert (again.status_code, again.json()["intentId"]) == (200, "before1")
        assert (await at.submit("before1", payload={"another": 1})).status_code == 409


async def test_another_target_is_taken_as_ever():
    async with full() as at:
        assert (await at.submit("other", submissionTarget="push.realtime")).status_code == 200


async def test_there_is_room_again_when_the_database_counts_fewer():
    async with full() as at:
        assert (await at.submit("one more")).status_code == 429
        at.intake.change("before0", status=Status.ACCEPTED)
        await at.app.admission._look()
        assert (await at.submit("one more")).status_code == 200
        assert (await at.submit("and another")).status_code == 429, "what was stored since the look counts"


async def test_what_is_stored_while_the_database_counts_is_counted_too():
    async with running(backlogs_max={TARGET: 2}) as at:
        count, counted, gate = at.intake.pending_counts, asyncio.Event(), asyncio.Event()

        async def slow(limit_s: float) -> Mapping[str, int]:
            found = await count(limit_s)
            counted.set()
            await gate.wait()
            return found

        at.intake.pending_counts = slow  # type: ignore[method-assign]
        look = asyncio.ensure_future(at.app.admission._look())
        await counted.wait()
        for name in ("a", "b"):
            assert (await at.submit(name)).status_code == 200
        gate.set()
        await look
        assert (await at.submit("c")).status_code == 429


async def test_requests_that_arrive_together_do_not_pass_the_limit_together():
    async with running(backlogs_max={TARGET: 3}) as at:
        await at.app.admission._look()
        store, gate, let_in = at.intake.submit, asyncio.Event(), []

        async def slow(new: NewIntent, limit_s: float) -> Submitted:
            let_in.append(new.intent_id)
            await gate.wait()
            return await store(new, limit_s)

        at.intake.submit = slow  # type: ignore[method-assign]
        asked = [asyncio.ensure_future(at.submit(f"i{n}")) for n in range(5)]
        await until(lambda: sum(one.done() for one in asked) + len(let_in) == 5)
        gate.set()
        assert sorted([(await one).status_code for one in asked]) == [200, 200, 200, 429, 429]
        assert len(at.intake.rows) == 3


async def test_a_request_that_could_not_be_stored_leaves_its_place():
    async with running(backlogs_max={TARGET: 1}) as at:
        await at.app.admission._look()
        at.intake.trouble = Unavailable("The database is away.")
        assert (await at.submit("a")).status_code == 503
        at.intake.trouble = None
        assert (await at.submit("a")).status_code == 200


async def test_a_refusal_is_logged_with_what_was_pending_then_not_with_what_is_left_when_it_is_told():
    async with full() as at:
        assert (await at.submit("one more")).status_code == 429
        del at.intake.rows["before0"], at.intake.rows["before1"]
        await at.app.admission._look()
        at.app.admission._log_refused()
        assert told(at, "backlog_full") == [{"submission_target": TARGET, "pending": 3, "max_backlog": 3, "refused": 1}]


async def test_the_database_is_asked_again_and_again_and_refusals_are_logged_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(admission, "LOOK_EVERY_S", 0.01)
    async with full() as at:
        for n in range(5):
            assert (await at.submit(f"more{n}")).status_code == 429
        counting = asyncio.ensure_future(at.app.admission.run())
        await until(lambda: bool(told(at, "backlog_full")))
        assert told(at, "backlog_full") == [{"submission_target": TARGET, "pending": 3, "max_backlog": 3, "refused": 5}]
        at.intake.rows.clear()
        await until(lambda: at.app.admission.most(TARGET) is None)
        counting.cancel()
        assert len(told(at, "backlog_full")) == 1


async def test_without_a_count_for_long_everything_is_taken_and_the_log_says_why(monkeypatch: pytest.MonkeyPatch):
    async with full() as at:
        at.intake.trouble = Unavailable("The database is away.")
        for _ in range(3):
            await at.app.admission._look()
        assert [fields["sql_error"] for fields in told(at, "backlog_uncounted")] == [str(at.intake.trouble)]
        at.intake.trouble = None
        assert (await at.submit("one more")).status_code == 429, "what was counted lately is believed"
        monkeypatch.setattr(admission, "OLD_S", 0.0)
        assert (await at.submit("one more")).status_code == 200


async def test_without_a_limit_nothing_is_refused():
    async with running() as at:
        await at.app.admission._look()
        for n in range(20):
            assert (await at.submit(f"i{n}")).status_code == 200
