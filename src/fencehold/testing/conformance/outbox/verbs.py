"""Tests what the verbs of an outbox promise beyond a single rule.

These are order, limits, batches, and what an operator sees. An event is stored once, however often it is added.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import uuid
from dataclasses import replace

import pytest

from fencehold.model.outbox.rules import Status, Verb
from fencehold.ports.events import ClaimKey, Failure, Filter, Stats
from fencehold.testing.conformance.outbox.pair import EVERYTHING, LEASE, EventTests, Pair, ask, claim, event, stray
from fencehold.testing.conformance.suite import START
from fencehold.testing.harness import CALL_LIMIT_S, Harness

SECOND = dt.timedelta(seconds=1)
AT_ONCE = 4

#: The outcome of each try, and whether the event then counts as recovered, and as a suspect.
HISTORIES = {
    ("died",): (True, False),
    ("died", "died"): (True, True),
    ("failed", "died"): (True, False),
    ("died", "failed", "died"): (True, False),
    ("failed", "died", "died"): (True, True),
    ("died", "died", "failed"): (False, False),
    ("died", "died", "stopped"): (True, True),
    ("failed", "failed", "stopped"): (False, False),
    ("died", "died", "redriven", "died"): (True, False),
}


class EventVerbs(EventTests):
    async def test_the_most_urgent_comes_first_then_the_longest_due_then_the_oldest(self, pair: Pair) -> None:
        late, usual, first, first_too = await pair.add(
            event(not_before=2.0), event(not_before=1.0), event(priority=5, not_before=1.0), event(priority=5)
        )
        await pair.set_clock(START + 3 * SECOND)
        same, same_too = await pair.add(event(), event())
        assert await pair.claim(ask("a", 3)) == [first_too, first, usual]
        assert await pair.claim(ask("b")) == [late, same, same_too]

    async def test_only_the_types_asked_for_are_claimed(self, pair: Pair) -> None:
        paid, sent, both = await pair.add(event("paid"), event("sent"), event("Paid"))
        assert await pair.claim(ask("a", event_types=())) == []
        assert await pair.claim(ask("b", event_types=("paid", "never"))) == [paid]
        assert await pair.claim(ask("c", event_types=None)) == [sent, both]

    async def test_in_order_only_the_oldest_unfinished_event_of_an_aggregate_is_claimed(self, pair: Pair) -> None:
        first, second, other, free, free_too = await pair.add(
            event(aggregate_id="7"), event(aggregate_id="7", priority=9), event(aggregate_id="7", aggregate_type="x"),
            event(), event(aggregate_type="x"),
        )  # fmt: skip
        assert await pair.claim(ask("a", in_order=True)) == [first, other, free, free_too]
        assert await pair.claim(ask("b", in_order=True)) == []
        await pair.fail(Failure(pair.key(first, "a"), "not now", 5.0))
        assert await pair.claim(ask("c", in_order=True)) == [], "the one before it is to be tried again"
        await pair.set_clock(START + 5 * SECOND)
        assert await pair.claim(ask("d", in_order=True)) == [first]
        assert await pair.claim(ask("e", in_order=True), [pair.key(first, "d")]) == [second]

    async def test_in_order_an_aggregate_waits_for_whoever_holds_a_later_event_of_it(self, pair: Pair) -> None:
        [dead] = await pair.add(event(aggregate_id="7"))
        await pair.claim(ask("a"))
        await pair.fail(Failure(pair.key(dead, "a"), "never", 0.0, retry=False))
        [later] = await pair.add(event(aggregate_id="7"))
        assert await pair.claim(ask("b", in_order=True)) == [later], "a dead letter blocks nobody"
        await pair.redrive([dead])
        assert await pair.claim(ask("c", in_order=True)) == []
        assert await pair.claim(ask("d", in_order=True), [pair.key(later, "b")]) == [dead]

    async def test_a_batch_is_answered_without_what_was_refused(self, pair: Pair) -> None:
        ids = await pair.add(*(event() for _ in range(6)))
        await pair.claim(ask("a"))
        keys = [pair.key(event_id, "a") for event_id in ids]
        foreign = pair.key(ids[0], "b")
        assert sorted(await pair.change(Verb.RENEW, [foreign, *keys[1:], stray()])) == ids[1:]
        assert sorted(await pair.change(Verb.COMPLETE, [stray(), keys[1], foreign, keys[0]])) == ids[:2]
        assert sorted(await pair.change(Verb.RELEASE, [keys[0], keys[2], keys[1]])) == [ids[2]]
        spent = Failure(keys[4], "two", 1.0, retry=False)
        await pair.fail(Failure(keys[3], "one", 2.5), spent, Failure(keys[0], "late", 1.0), Failure(stray(), "", 1.0))
        await pair.check_all()

    async def test_of_two_keys_to_one_event_the_holders_counts_once(self, pair: Pair) -> None:
        [event_id] = await pair.add(event())
        await pair.claim(ask("a"))
        mine, other = pair.key(event_id, "a"), pair.key(event_id, "b")
        port = pair.client.port
        assert list(await port.renew([other, mine, mine], 60.0, CALL_LIMIT_S)) == [mine]
        failures = [Failure(other, "not mine", 0.0), Failure(mine, "mine", 0.0), Failure(mine, "again", 0.0)]
        assert await port.fail(failures, CALL_LIMIT_S) == [(mine, Status.FAILED)]
        [row] = await pair.client.admin.find(Filter(), 10, CALL_LIMIT_S)
        assert row.retry_count == 1

    async def test_nothing_asked_is_nothing_answered(self, pair: Pair) -> None:
        port = pair.client.port
        assert await port.add([], CALL_LIMIT_S) == []
        assert await port.renew([], 60.0, CALL_LIMIT_S) == {}
        assert await port.release([], CALL_LIMIT_S) == []
        assert await port.fail([], CALL_LIMIT_S) == []
        turn = await port.turn([], None, CALL_LIMIT_S)
        assert (list(turn.completed), turn.claims) == ([], [])
        assert await claim(port, "a", 0) == []

    async def test_the_reaper_takes_the_longest_lapsed_first_and_its_run_is_recorded(self, pair: Pair) -> None:
        assert (await stats(pair)).reaper_ran_s_ago is None
        assert await pair.reap() == []
        assert ((await stats(pair)).reaper_runs, (await stats(pair)).reaper_ran_s_ago) == (1, 0.0)
        ids = await pair.add(event("a"), event("b"), event("c"))
        for seconds, event_type in ((3.0, "a"), (1.0, "b"), (2.0, "c")):
            await pair.claim(ask(event_type, lease_s=seconds, event_types=(event_type,)))
        await pair.set_clock(START + 10 * SECOND)
        assert (await stats(pair)).lapsed == 3
        assert await pair.reap(2) == [ids[1], ids[2]]
        assert await pair.reap(2) == [ids[0]]
        await pair.set_clock(START + 12 * SECOND)
        seen = await stats(pair)
        assert (seen.reaper_runs, seen.reaper_ran_s_ago, seen.lapsed, seen.pending) == (3, 2.0, 0, 3)

    async def test_suspects_are_claimed_only_as_many_as_were_asked_for(self, pair: Pair) -> None:
        """A suspect is an event that was recovered twice in a row, so it may kill its workers.

        One that failed twice is none.
        """
        for in_order in (False, True):
            ids = await pair.add(*(event() for _ in range(3)))
            for _ in range(2):
                assert [one.id for one in await claim(pair.client.port, "dead", suspects_max=0)] == ids
                await pair.set_clock(pair.now + 2 * LEASE)
                assert len(await pair.client.port.reap(EVERYTHING, CALL_LIMIT_S)) == 3
            for may_miss in (True, False):
                assert await claim(pair.client.port, "n", suspects_max=0, in_order=in_order, may_miss=may_miss) == []
            [failed] = await pair.add(event())
            for _ in range(2):
                [held] = await claim(pair.client.port, "f", suspects_max=0)
                await pair.client.port.fail([Failure(held.key, "no", 0.0)], CALL_LIMIT_S)
            [held] = await claim(pair.client.port, "f", suspects_max=0, in_order=in_order)
            assert (held.id, held.attempt, held.recovered, held.is_suspect) == (failed, 3, False, False)
            [first] = await claim(pair.client.port, "a", suspects_max=1, in_order=in_order)
            assert (first.attempt, first.recovered, first.is_suspect) == (3, True, True)
            rest = await claim(pair.client.port, "b", in_order=in_order)
            assert sorted(one.id for one in (first, *rest)) == ids
            await pair.client.port.turn([held, first, *rest], None, CALL_LIMIT_S)

    @pytest.mark.parametrize("history", HISTORIES, ids=" ".join)
    async def test_a_suspect_is_what_was_recovered_twice_in_a_row(
        self, harness: Harness, history: tuple[str, ...]
    ) -> None:
        """A suspect is an event that was recovered twice in a row, so it may kill its workers.

        A release is no try; a failed try shows that its worker survived the event.
        """
        pair, (recovered, is_suspect) = await Pair.of(harness), HISTORIES[history]
        for in_order in (False, True):
            ids = await pair.add(event(), event())
            for happened in history:
                held = await claim(pair.client.port, "w", in_order=in_order)
                await happen(pair, happened, [one.key for one in held])
            first = await claim(pair.client.port, "a", suspects_max=1, in_order=in_order)
            assert len(first) == (1 if is_suspect else 2)
            assert await claim(pair.client.port, "b", suspects_max=0, in_order=in_order) == []
            claims = first + await claim(pair.client.port, "c", in_order=in_order)
            assert [one.id for one in claims] == ids
            assert {(one.recovered, one.is_suspect) for one in claims} == {(recovered, is_suspect)}
            await pair.client.port.turn(claims, None, CALL_LIMIT_S)

    async def test_stats_count_every_status_and_the_age_of_what_waits(self, pair: Pair) -> None:
        ids = await in_every_status(pair)
        await pair.add(event(not_before=60.0))
        await pair.set_clock(START + 4 * SECOND)
        seen = await stats(pair)
        assert (seen.pending, seen.processing, seen.completed, seen.failed, seen.dead_letter) == (2, 1, 1, 1, 1)
        assert abs(seen.oldest_pending_age_s - 4.0) < 1e-6, "since when it was due, not since when it was added"
        assert (await pair.client.admin.stats(CALL_LIMIT_S, whole=False)).completed == 0
        await pair.claim(ask("z"))
        await pair.change(Verb.COMPLETE, [pair.key(ids[status], "z") for status in (Status.PENDING, Status.FAILED)])
        assert (await stats(pair)).oldest_pending_age_s == 0.0, "what is not due yet has no age"


async def happen(pair: Pair, what: str, keys: list[ClaimKey]) -> None:
    port = pair.client.port
    match what:
        case "died":
            await pair.set_clock(pair.now + 2 * LEASE)
            assert len(await port.reap(EVERYTHING, CALL_LIMIT_S)) == len(keys)
        case "failed":
            assert len(await port.fail([Failure(key, "no", 0.0) for key in keys], CALL_LIMIT_S)) == len(keys)
        case "stopped":
            assert len(await port.release(keys, CALL_LIMIT_S)) == len(keys)
        case _:
            await port.fail([Failure(key, "no", 0.0, retry=False) for key in keys], CALL_LIMIT_S)
            assert len(await pair.client.admin.redrive(Filter(), "", EVERYTHING, 0.0, CALL_LIMIT_S)) == len(keys)


class EventAdmins(EventTests):
    async def test_find_gives_the_newest_first_of_what_is_asked_for(self, pair: Pair) -> None:
        ids = await in_every_status(pair)
        await pair.set_clock(START + 10 * SECOND)
        young, youngest = await pair.add(event("young"), event("young"))
        assert await found(pair, Filter(), 3) == [youngest, young, max(ids.values())]
        assert await found(pair, Filter(event_types=("young", "never"))) == [youngest, young]
        assert await found(pair, Filter(statuses=(Status.DEAD_LETTER,))) == [ids[Status.DEAD_LETTER]]
        assert await found(pair, Filter(older_than_s=5.0)) == sorted(ids.values(), reverse=True)
        assert await found(pair, Filter(older_than_s=10.0)) == [], "exactly as old is not older"
        assert await found(pair, Filter((Status.PENDING,), ("young",), older_than_s=1.0)) == []

    async def test_find_says_how_long_an_event_waits_and_is_held(self, pair: Pair) -> None:
        held, waiting = await pair.add(event(), event(not_before=30.0))
        await pair.claim(ask("a"))
        await pair.set_clock(START + 10 * SECOND)
        rows = {row.id: row for row in await pair.client.admin.find(Filter(), 10, CALL_LIMIT_S)}
        assert (rows[waiting].waits_s, rows[waiting].held_s) == (20.0, None)
        assert rows[held].held_s == LEASE.total_seconds() - 10.0

    async def test_redriven_events_come_back_one_by_one_and_a_dry_run_only_says_so(self, pair: Pair) -> None:
        ids = await pair.add(*(event() for _ in range(4)))
        await pair.claim(ask("a"))
        await pair.fail(*(Failure(pair.key(event_id, "a"), "bad", 0.0, retry=False) for event_id in ids))
        which = Filter((Status.DEAD_LETTER,))
        admin = pair.client.admin
        told = await admin.redrive(which, "fixed", 3, 0.6, CALL_LIMIT_S, dry_run=True)
        assert told == [pair.oracle.rows[event_id].new.tracking_id for event_id in ids[:3]]
        await pair.check_all()
        await pair.redrive(ids, "fixed", 3, 0.6)
        due = [pair.oracle.rows[event_id].stored.due_at - START for event_id in ids[:3]]
        assert [one.total_seconds() for one in due] == [0.0, 0.6, 1.2]

    async def test_redriving_without_a_status_means_dead_letters_and_failed_ones(self, pair: Pair) -> None:
        ids = await in_every_status(pair)
        told = await pair.client.admin.redrive(Filter(), "", EVERYTHING, 0.0, CALL_LIMIT_S, dry_run=True)
        meant = sorted([ids[Status.DEAD_LETTER], ids[Status.FAILED]])
        assert told == [pair.oracle.rows[event_id].new.tracking_id for event_id in meant]

    async def test_purge_deletes_finished_events_and_no_others(self, pair: Pair) -> None:
        ids = await in_every_status(pair)
        await pair.set_clock(START + 10 * SECOND)
        admin = pair.client.admin
        unfinished = Filter((Status.PENDING, Status.PROCESSING, Status.FAILED))
        assert await admin.purge(unfinished, EVERYTHING, CALL_LIMIT_S) == 0
        completed = Filter((Status.COMPLETED,), older_than_s=5.0)
        assert await admin.purge(Filter((Status.COMPLETED,), older_than_s=20.0), EVERYTHING, CALL_LIMIT_S) == 0
        assert await admin.purge(completed, EVERYTHING, CALL_LIMIT_S, dry_run=True) == 1
        await pair.check_all()
        assert await admin.purge(completed, EVERYTHING, CALL_LIMIT_S) == 1
        assert await admin.purge(completed, EVERYTHING, CALL_LIMIT_S) == 0
        assert ids[Status.COMPLETED] not in await found(pair, Filter())
        assert ids[Status.DEAD_LETTER] in await found(pair, Filter())
        assert await admin.purge(Filter((Status.DEAD_LETTER,)), EVERYTHING, CALL_LIMIT_S) == 1
        left = {ids[status] for status in (Status.PENDING, Status.PROCESSING, Status.FAILED)}
        assert set(await found(pair, Filter())) == left

    async def test_purge_stops_at_its_limit(self, pair: Pair) -> None:
        ids = await pair.add(*(event() for _ in range(5)))
        await pair.claim(ask("a"))
        await pair.change(Verb.COMPLETE, [pair.key(event_id, "a") for event_id in ids])
        admin = pair.client.admin
        assert await admin.purge(Filter((Status.COMPLETED,)), 3, CALL_LIMIT_S) == 3
        assert await found(pair, Filter()) == [ids[4], ids[3]], "the oldest go first"


class EventDedupe(EventTests):
    async def test_a_known_tracking_id_is_left_alone_and_left_out(self, pair: Pair) -> None:
        first = event(payload="first", tracking_id=uuid.uuid4())
        [event_id] = await pair.add(first)
        again, other = replace(first, payload='"again"', priority=9), event(tracking_id=uuid.uuid4())
        assert await pair.client.port.add([again, other], CALL_LIMIT_S) == [other.tracking_id]
        assert await pair.client.port.add([again, other], CALL_LIMIT_S) == []
        [row] = await pair.client.admin.find(Filter(tracking_ids=(first.tracking_id,)), 9, CALL_LIMIT_S)
        assert (row.id, row.payload, row.priority) == (event_id, first.payload, 0)

    async def test_a_tracking_id_given_twice_in_one_batch_is_stored_once(self, pair: Pair) -> None:
        one = event(tracking_id=uuid.uuid4())
        assert await pair.client.port.add([one, replace(one, payload="2")], CALL_LIMIT_S) == [one.tracking_id]
        rows = await pair.client.admin.find(Filter(), EVERYTHING, CALL_LIMIT_S)
        assert [row.payload for row in rows] == [one.payload]

    async def test_a_known_event_far_down_in_what_is_made_as_it_is_taken_is_left_out(self, pair: Pair) -> None:
        known = event(tracking_id=uuid.uuid4())
        await pair.client.port.add([known], CALL_LIMIT_S)
        more = [event(payload=n) for n in range(250)]
        added = await pair.client.port.add(iter([*more, known]), CALL_LIMIT_S)
        assert sorted(added) == sorted(one.tracking_id for one in more)
        assert len(await pair.client.admin.find(Filter(), EVERYTHING, CALL_LIMIT_S)) == len(more) + 1

    async def test_a_finished_event_stays_known(self, pair: Pair) -> None:
        one = event(tracking_id=uuid.uuid4())
        await pair.add(one)
        await pair.claim(ask("a"))
        await pair.client.port.turn([row.key for row in pair.oracle.rows.values()], None, CALL_LIMIT_S)
        assert await pair.client.port.add([one], CALL_LIMIT_S) == []

    async def test_of_many_who_add_the_same_event_at_once_one_has_added_it(self, harness: Harness) -> None:
        pair = await Pair.of(harness, clients=AT_ONCE)
        ones = [event(payload=n, tracking_id=uuid.uuid4()) for n in range(20)]
        added = await asyncio.gather(*(client.port.add(ones, CALL_LIMIT_S) for client in pair.clients))
        assert sorted(tracking_id for some in added for tracking_id in some) == sorted(one.tracking_id for one in ones)
        assert len(await pair.client.admin.find(Filter(), EVERYTHING, CALL_LIMIT_S)) == len(ones)


async def in_every_status(pair: Pair) -> dict[Status, int]:
    """Make one event in each status, all at the present instant; return their ids by status."""
    ids = await pair.add(*(event() for _ in range(5)))
    await pair.claim(ask("a", 4))
    completed, failed, dead, held, pending = ids
    await pair.change(Verb.COMPLETE, [pair.key(completed, "a")])
    await pair.fail(Failure(pair.key(failed, "a"), "f", 0.0), Failure(pair.key(dead, "a"), "d", 0.0, retry=False))
    return {
        Status.COMPLETED: completed, Status.FAILED: failed, Status.DEAD_LETTER: dead, Status.PROCESSING: held,
        Status.PENDING: pending,
    }  # fmt: skip


async def stats(pair: Pair) -> Stats:
    return await pair.client.admin.stats(CALL_LIMIT_S)


async def found(pair: Pair, which: Filter, limit: int = EVERYTHING) -> list[int]:
    return [row.id for row in await pair.client.admin.find(which, limit, CALL_LIMIT_S)]
