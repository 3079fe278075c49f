"""A term of office: rebuild, re-check, refresh, and what ends it."""

from __future__ import annotations

import asyncio

import pytest

from fencehold import ConfigurationError, Unavailable, Uncertain
from fencehold.testing.simulation import virtual_loop
from submission_manager.model.intents import Status
from submission_manager.model.outcomes import OUTCOME_UNKNOWN
from tests.fencehold.testing.simulation.on_virtual_time import virtual
from tests.submission_manager.executor.scene import LEASE_S, Scene

# Spec 000's five


@virtual
async def test_of_instances_that_start_at_once_one_leads_and_only_it_executes() -> None:
    scene = Scene()
    all_of_them = [await (await scene.instance(holder_id)).start() for holder_id in "abc"]
    for number in range(50):
        scene.table.submit(f"x{number}")
    await scene.until(lambda: scene.are_over(*scene.table.rows))
    assert sorted(len(one.gateway.calls) for one in all_of_them) == [0, 0, 50]
    assert sum(one.counts.of["rebuilds"] for one in all_of_them) == 1


@virtual
async def test_after_expiry_another_leads_and_goes_on() -> None:
    scene = Scene()
    one = await (await scene.instance("a")).start()
    await one.leads()
    two = await (await scene.instance("b")).start()
    one.die()
    scene.table.submit("x")
    await scene.until(lambda: scene.are_over("x"), limit_s=LEASE_S + 1)
    assert two.gateway.calls == ["x/1"]
    assert scene.table.starts == [("x", 2)]


@virtual
async def test_a_follower_reads_no_schedule_and_executes_nothing() -> None:
    scene = Scene()
    one = await (await scene.instance("a")).start()
    await one.leads()
    two = await (await scene.instance("b")).start()
    scene.table.submit("x")
    await scene.until(lambda: scene.are_over("x"))
    await asyncio.sleep(10 * LEASE_S)
    assert two.gateway.calls == []
    assert two.counts.of["rebuilds"] == two.counts.of["refreshes"] == 0


@virtual
async def test_when_the_lease_is_lost_nothing_new_begins() -> None:
    scene = Scene()
    one = await (await scene.instance()).start()
    term = await one.leads()
    await scene.until(lambda: one.counts.of["refreshes"] > 1)
    for number in range(5):
        scene.table.submit(f"x{number}")
    term.lost("test")
    one.leadership.reader.hint()
    await asyncio.sleep(LEASE_S / 2)
    assert one.gateway.calls == []
    assert scene.table.starts == []


@virtual
async def test_the_leader_picks_up_what_was_submitted_elsewhere_at_its_next_refresh() -> None:
    scene = Scene()
    one = await (await scene.instance(refresh_every_s=3.0)).start()
    await scene.until(lambda: one.counts.of["refreshes"] == 1)
    scene.table.submit("x")
    await scene.until(lambda: scene.are_over("x"), limit_s=3.05)
    assert one.counts.of["refreshes"] == 2


# Rebuild


@virtual
async def test_a_lease_lost_during_the_rebuild_discards_the_schedule() -> None:
    scene = Scene()
    for number in range(10):
        scene.table.submit(f"x{number}")
    scene.table.reached["rebuild"], scene.table.gates["rebuild"] = asyncio.Event(), asyncio.Event()
    one = await (await scene.instance(page_rows=3)).start()
    term = await one.leads()
    await scene.table.reached["rebuild"].wait()
    term.lost("test")
    scene.table.gates["rebuild"].set()
    await asyncio.sleep(LEASE_S / 2)
    assert scene.table.starts == []
    assert one.counts.of["rebuilds"] == scene.table.refreshes == 0


@virtual
async def test_a_lease_lost_with_the_last_page_of_the_rebuild_starts_nothing() -> None:
    scene = Scene()
    for number in range(10):
        scene.table.submit(f"x{number}")
    one = await scene.instance(page_rows=3)
    rebuild = scene.table.rebuild

    async def then_lost(page_rows, limit_s):
        async for page in rebuild(page_rows, limit_s):
            yield page
        one.leader.term.lost("test")  # type: ignore[union-attr]

    scene.table.rebuild = then_lost  # type: ignore[method-assign]
    await one.start()
    await asyncio.sleep(LEASE_S / 2)
    assert scene.table.starts == []


@virtual
async def test_each_term_begins_with_a_rebuild_of_its_own_and_knows_everything_pending() -> None:
    scene = Scene()
    one = await (await scene.instance("a")).start()
    await one.leads()
    one.gateway.gates["http://sms"] = asyncio.Event()
    for number in range(20):
        scene.table.submit(f"x{number}")
    await scene.until(lambda: len(one.gateway.calls) == 16)
    two = await (await scene.instance("b", page_rows=7)).start()
    one.die()
    await scene.until(lambda: scene.are_over(*scene.table.rows))
    assert two.counts.of["rebuilds"] == 1
    assert two.counts.of["attempt unknown"] == 16
    assert len(two.gateway.calls) == 20


# Refresh


@virtual
async def test_a_row_observed_many_times_is_attempted_once() -> None:
    scene = Scene()
    one = await scene.instance(refresh_every_s=0.1)
    refresh = scene.table.refresh

    async def forgetful(cursor, page_rows, limit_s):
        page = await refresh(cursor, page_rows, limit_s)
        return type(page)(page.rows * 3, cursor, page.now)  # and the cursor stays where it is

    scene.table.refresh = forgetful  # type: ignore[method-assign]
    one.gateway.gates["x0"] = asyncio.Event()
    await one.start()
    for number in range(10):
        scene.table.submit(f"x{number}")
    await asyncio.sleep(5)
    one.gateway.gates["x0"].set()
    await asyncio.sleep(5)
    assert sorted(one.gateway.calls) == sorted(f"x{n}/1" for n in range(10))


@virtual
async def test_a_full_page_is_followed_by_the_next_at_once() -> None:
    scene = Scene()
    one = await (await scene.instance(page_rows=4)).start()
    await scene.until(lambda: one.counts.of["refreshes"] == 1)
    scene.table.page_rows_seen.clear()
    for number in range(10):
        scene.table.submit(f"x{number}")
    await scene.until(lambda: scene.are_over(*scene.table.rows), limit_s=1.05)
    assert scene.table.page_rows_seen[:3] == [4, 4, 2]


@virtual
async def test_a_hint_makes_the_leader_look_at_once_and_a_flood_of_them_does_not_make_it_look_for_each() -> None:
    scene = Scene()
    one = await (await scene.instance(refresh_every_s=1000.0)).start()
    await scene.until(lambda: one.counts.of["rebuilds"] == 1)
    scene.table.submit("x")
    for _ in range(1000):
        for hint in scene.table.hints:
            hint()
        await asyncio.sleep(0.0001)
    await scene.until(lambda: scene.are_over("x"), limit_s=0.02)
    assert one.counts.of["refreshes"] <= 12


# The database does not answer


@pytest.mark.parametrize("error", [Unavailable("down"), Uncertain("no answer")], ids=["unavailable", "uncertain"])
@pytest.mark.parametrize("verb", ["refresh", "start", "record", "owed_webhooks"])
def test_an_sql_error_drops_leadership_and_another_leads_at_once(verb: str, error: Exception) -> None:
    async def run() -> None:
        scene = Scene()
        one = await (await scene.instance("a")).start()
        await scene.until(lambda: one.leader.is_leader)
        two = await (await scene.instance("b")).start()
        await scene.until(lambda: one.counts.of["refreshes"] > 0)
        scene.table.failing_once[verb] = error
        scene.table.submit("x")
        await scene.until(lambda: "executor_sql_error" in one.facts.names(), limit_s=31)
        # An outcome that is known is recorded first, at the next try.
        await scene.until(lambda: two.leader.is_leader, limit_s=1.5 if verb == "record" else 0.5)
        await scene.until(lambda: scene.are_over("x"), limit_s=LEASE_S)
        assert one.gateway.calls + two.gateway.calls == ["x/1"]
        lost = [fields for event, fields in one.facts.told if event == "leader_lost"]
        assert [(f["holder_id"], f["lease_epoch"], f["sql_error"]) for f in lost] == [("a", 1, str(error))]

    virtual_loop.run(run)


@virtual
async def test_an_sql_error_in_the_rebuild_drops_leadership_and_another_leads_at_once() -> None:
    scene = Scene()
    scene.table.failing_once["rebuild"] = Unavailable("down")
    scene.table.submit("x")
    one = await scene.instance("a")
    one.run = asyncio.create_task(one.leadership.run())
    two = await (await scene.instance("b")).start()
    await scene.until(lambda: scene.are_over("x"), limit_s=0.5)
    assert (len(one.gateway.calls), len(two.gateway.calls)) == (0, 1)


@virtual
async def test_a_record_that_is_never_answered_drops_leadership_too() -> None:
    scene = Scene()
    scene.table.gates["record"] = asyncio.Event()
    one = await (await scene.instance("a")).start()
    await one.leads()
    two = await (await scene.instance("b")).start()
    scene.table.submit("x")
    await scene.until(lambda: two.leader.is_leader, limit_s=12 + LEASE_S)
    scene.table.gates["record"].set()
    await scene.until(lambda: scene.are_over("x"))
    assert [attempt.error for attempt in scene.table.rows["x"].attempts] == [OUTCOME_UNKNOWN, None]


@virtual
async def test_an_instance_that_dropped_leadership_seeks_it_again() -> None:
    scene = Scene()
    one = await (await scene.instance()).start()
    await one.leads()
    scene.table.failing["refresh"] = Unavailable("down")
    await scene.until(lambda: not one.leader.is_leader)
    terms = one.counts.of["rebuilds"]
    await asyncio.sleep(60)
    assert terms < one.counts.of["rebuilds"] < 40  # it tries, and not in a storm
    del scene.table.failing["refresh"]
    scene.table.submit("x")
    await scene.until(lambda: scene.are_over("x"), limit_s=2 * LEASE_S)


@virtual
async def test_terms_that_end_as_soon_as_they_begin_come_more_and_more_seldom_and_readyz_can_say_why() -> None:
    scene = Scene()
    both = [await scene.instance(holder_id) for holder_id in "ab"]
    scene.table.failing["rebuild"] = Unavailable("too many connections", code="too_many_connections")
    for one in both:
        one.run = asyncio.create_task(one.leadership.run())
    await asyncio.sleep(124)
    assert sum(one.facts.names().count("leader_acquired") for one in both) < 30  # it was 109
    assert all("too_many_connections" in str(one.leadership.misfit) for one in both)
    del scene.table.failing["rebuild"]
    scene.table.submit("x")
    await scene.until(lambda: scene.are_over("x"), limit_s=16)


@virtual
async def test_what_no_retry_can_mend_is_tried_more_and_more_seldom_and_work_goes_on_once_it_is_mended() -> None:
    scene = Scene()
    both = [await (await scene.instance(holder_id)).start() for holder_id in "ab"]
    scene.table.failing["refresh"] = ConfigurationError("a table is missing", code="schema_missing")
    await asyncio.sleep(1000)
    terms = sum(one.facts.names().count("leader_acquired") for one in both)
    assert 20 < terms < 60  # else the lease would be handed around every second
    del scene.table.failing["refresh"]
    scene.table.submit("x")
    await scene.until(lambda: scene.are_over("x"), limit_s=61)


@pytest.mark.fault("shutdown", "service", "any")
@virtual
async def test_what_keeps_an_instance_from_leading_is_known_until_it_has_led_for_a_minute_again() -> None:
    scene = Scene()
    one = await (await scene.instance()).start()
    await one.leads()
    assert one.leadership.misfit is None
    lost = scene.table.failing["start"] = ConfigurationError("no INSERT on submission_attempts", code="no_permission")
    scene.table.submit("x")
    await scene.until(lambda: "leadership_paused" in one.facts.names())
    for _ in range(100):
        assert one.leadership.misfit is lost
        await asyncio.sleep(0.5)
    del scene.table.failing["start"]
    await scene.until(lambda: scene.are_over("x"), limit_s=62)
    await scene.until(lambda: one.leadership.misfit is None, limit_s=62)


@virtual
async def test_what_kept_an_instance_from_leading_is_forgotten_while_another_leads() -> None:
    scene = Scene()
    one = await (await scene.instance("a")).start()
    await one.leads()
    scene.table.failing_once["refresh"] = Unavailable("down")
    await scene.until(lambda: one.leadership.misfit is not None)
    await (await scene.instance("b")).start()
    await asyncio.sleep(119)
    assert one.leadership.misfit is not None
    await asyncio.sleep(2)
    assert one.leadership.misfit is None


@virtual
async def test_an_instance_that_waits_before_it_leads_again_stops_at_once() -> None:
    scene = Scene()
    one = await (await scene.instance()).start()
    scene.table.failing["refresh"] = ConfigurationError("a table is missing", code="schema_missing")
    await scene.until(lambda: one.facts.names().count("leadership_paused") == 6)
    await one.leadership.stop()
    assert one.run is not None
    await asyncio.wait([one.run], timeout=0.5)
    assert one.run.done()
    assert not one.leader.is_leader


@pytest.mark.parametrize("verb", ["rebuild", "refresh", "start", "record", "owed_webhooks"])
def test_with_retry_the_leader_keeps_its_term_and_goes_on_when_the_database_answers_again(verb: str) -> None:
    async def run() -> None:
        scene = Scene()
        one = await scene.instance("a", retry_on_error=True)
        scene.table.failing[verb] = Unavailable("down")
        scene.table.submit("x")
        await one.start()
        await asyncio.sleep(20)
        assert one.facts.names().count("executor_sql_error") <= 21
        del scene.table.failing[verb]
        await scene.until(lambda: scene.are_over("x"), limit_s=3)
        assert one.gateway.calls == ["x/1"]
        assert [epoch for _, epoch in scene.table.starts] == [1]
        assert scene.table.rows["x"].status is Status.ACCEPTED

    virtual_loop.run(run)


@virtual
async def test_a_fault_of_our_own_ends_the_term_and_not_the_service() -> None:
    scene = Scene()
    one = await scene.instance("a")
    scene.table.failing["refresh"] = ZeroDivisionError("ours")
    await one.start()
    await scene.until(lambda: "internal_error" in one.facts.names())
    del scene.table.failing["refresh"]
    scene.table.submit("x")
    await scene.until(lambda: scene.are_over("x"), limit_s=2 * LEASE_S)
