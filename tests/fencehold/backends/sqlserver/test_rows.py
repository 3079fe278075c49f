"""What the rows of the statements mean, on a session that answers from a script: no server is needed."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from typing import Any

import pytest

from fencehold.backends.sqlserver.items.items import SqlServerItemPort
from fencehold.backends.sqlserver.leases import SqlServerLeases
from fencehold.backends.sqlserver.outbox.admin import SqlServerEventAdmin
from fencehold.backends.sqlserver.outbox.events import SqlServerEventPort
from fencehold.model.election.rules import Busy, Lease, Refusal, TermKey
from fencehold.model.errors import Unavailable
from fencehold.model.items.rules import ABSENT, HELD_BY_ANOTHER, LAPSED, ItemKey
from fencehold.model.outbox.rules import Status
from fencehold.ports.events import ClaimAsk, ClaimKey, Filter
from fencehold.ports.items import ItemRefusal, ItemRow, NewItem

AT = dt.datetime(2026, 1, 1)  # noqa: DTZ001 - as the driver gives it
NOW = AT.replace(tzinfo=dt.UTC)
MINUTE = dt.timedelta(minutes=1)
LIMIT_S = 30.0
KEY = ItemKey("7", "ada", 2)

FREE = ("7", "NEW", AT, "{}", 2, None, None, 0, None, AT)
ADAS = ("7", "NEW", AT, "{}", 2, "ada", AT, 60_000, AT + MINUTE, AT)
LAPSED_ROW = ("7", "NEW", AT, "{}", 2, "ada", AT, 60_000, AT, AT)
BOBS = ("7", "NEW", AT, "{}", 3, "bob", AT, 60_000, AT + MINUTE, AT)


class Script:
    """Gives the next answer, whatever it is asked, and remembers what it was."""

    def __init__(self, *answers: list[tuple[Any, ...]]) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[str, dict[str, Any]]] = []

    async def run(self, name: str, params: Mapping[str, Any], limit_s: float) -> list[tuple[Any, ...]]:
        self.asked.append((name, dict(params)))
        return self._answers.pop(0)

    async def drop_line(self) -> None: ...


def items(*answers: list[tuple[Any, ...]]) -> tuple[SqlServerItemPort, Script]:
    script = Script(*answers)
    return SqlServerItemPort(script, "deal "), script


async def test_an_item_is_shown_with_its_live_lease_and_without_a_lapsed_one():
    port, _ = items([ADAS], [LAPSED_ROW])
    held = (await port.get(["7"], LIMIT_S))["7"]
    assert (held.key, held.lease_s, held.remaining_s) == (KEY, 60.0, 60.0)
    assert (held.leased_at, held.expires_at) == (NOW, NOW + MINUTE)
    free = (await port.get(["7"], LIMIT_S))["7"]
    assert (free.holder_id, free.expires_at, free.token) == (None, None, 2)


async def test_names_that_end_with_a_blank_are_stored_with_a_mark_and_given_without_it():
    port, script = items([("7\u2420", "NEW\u2420", AT, "{}", 0, None, None, 0, None, AT)])
    [found] = await port.find("NEW ", 5, LIMIT_S)
    assert (found.id, found.state) == ("7", "NEW")
    assert script.asked == [("find", {"state": "NEW \u2420", "limit": 5, "kind": "deal \u2420"})]


async def test_an_acquire_asks_again_while_nobody_has_the_item():
    port, script = items([(*FREE, 0)], [(*ADAS, 1)], [(*BOBS, 0)], [])
    first = await port.acquire("7", "ada", 60.0, LIMIT_S)
    assert isinstance(first, ItemRow)
    assert len(script.asked) == 2
    second = await port.acquire("7", "ada", 60.0, LIMIT_S)
    assert isinstance(second, ItemRefusal)
    assert second.reason == HELD_BY_ANOTHER
    assert await port.acquire("7", "ada", 60.0, LIMIT_S) == ItemRefusal(ABSENT)
    with pytest.raises(Unavailable):
        await port.acquire("7", "ada", 60.0, 0.0)


async def test_a_put_is_answered_as_an_acquire_and_asks_again_without_a_row():
    port, script = items([], [(*FREE, 1)])
    assert isinstance(await port.put(NewItem("7", "NEW", "{}", "ada"), LIMIT_S), ItemRow)
    assert [name for name, _ in script.asked] == ["put", "put"]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [([], ABSENT), ([(*FREE, 0)], LAPSED), ([(*BOBS, 0)], HELD_BY_ANOTHER), ([(*ADAS, 1)], None)],
)
async def test_a_save_and_a_delete_are_done_or_refused(rows: list[tuple[Any, ...]], reason: str | None):
    port, script = items(rows, rows)
    for answer in (await port.save(KEY, None, None, LIMIT_S), await port.delete(KEY, LIMIT_S)):
        assert (answer.reason if isinstance(answer, ItemRefusal) else None) == reason
    params = {"id": "7", "holder": "ada", "token": 2, "kind": "deal \u2420"}
    assert script.asked == [("save", {**params, "state": "", "document": ""}), ("delete", params)]


async def test_a_renewal_is_repeated_for_rows_that_were_locked():
    other = ItemKey("8", "ada", 1)
    port, script = items([("7", "ada", 2, AT), ("8", "ada", 1, None)], [("8", "ada", 1, AT + MINUTE)])
    assert await port.renew([KEY, other], 60.0, LIMIT_S) == {KEY: NOW, other: NOW + MINUTE}
    assert [key["id"] for key in json.loads(script.asked[1][1]["keys"])] == ["8"]


async def test_a_break_is_repeated_for_what_is_still_our_own_and_names_others_by_place():
    other = ItemKey("8", "ada", 1)
    port, script = items([(*BOBS, 0, 0), ("8", *ADAS[1:], 1, 1)], [])
    [(key, refusal)] = (await port.break_leases([KEY, other], LIMIT_S)).items()
    assert (key, refusal.reason) == (KEY, HELD_BY_ANOTHER)
    assert [one["id"] for one in json.loads(script.asked[1][1]["keys"])] == ["8"]


async def test_the_next_items_come_in_the_order_of_their_states():
    later = ("6", "NEW", AT + MINUTE, *ADAS[3:])
    port, _ = items([later, ADAS])
    assert [one.id for one in await port.next_for_state("NEW", 5, "ada", 60.0, LIMIT_S)] == ["7", "6"]


COLUMNS = ("job", "ada", 3, AT, AT, AT + MINUTE, AT, 0, "n", "id")


@pytest.mark.parametrize(("verdict", "kind"), [("yes", Lease), ("busy", Busy), ("held", Refusal)])
async def test_a_lease_is_granted_busy_or_refused(verdict: str, kind: type):
    leases = SqlServerLeases(Script([(verdict, *COLUMNS)]))  # type: ignore[arg-type]
    [answer] = await leases.renew([TermKey("job", "ada", 3, 60.0)], LIMIT_S)
    assert isinstance(answer, kind)
    lease = answer if isinstance(answer, Lease) else answer.current
    assert lease == Lease("job", "ada", 3, NOW, NOW, NOW + MINUTE, 60.0, False, "n", "id")


async def test_a_refusal_without_a_row_shows_no_lease():
    leases = SqlServerLeases(Script([("absent", "job", None, *COLUMNS[2:])], [("seen", *COLUMNS)]))  # type: ignore[arg-type]
    assert await leases.renew([TermKey("job", "ada", 3, 60.0)], LIMIT_S) == [Refusal("absent")]
    assert list(await leases.read(["job"], LIMIT_S)) == ["job"]


async def test_a_turn_tells_what_was_completed_from_what_was_claimed():
    claimed = (5, "t5", "order", "{}", AT + MINUTE, 1, 5, "a", "order", None, 2, AT, AT, 1, 1, None)
    done = (4, *([None] * 14), "old")
    port = SqlServerEventPort(Script([done, claimed]))  # type: ignore[arg-type]
    keys = [ClaimKey(4, "old", "t4"), ClaimKey(3, "old", "t3")]
    turn = await port.turn(keys, ClaimAsk(9, "new", 60.0), LIMIT_S)
    assert turn.completed == keys[:1]
    [claim] = turn.claims
    assert (claim.key, claim.attempt, claim.priority, claim.recovered) == (ClaimKey(5, "new"), 2, 2, True)
    assert (claim.locked_until, claim.created_at, claim.aggregate_id) == (NOW + MINUTE, NOW, "a")


async def test_events_are_renewed_failed_given_back_and_recovered_by_their_names():
    key = ClaimKey(5, "new")
    port = SqlServerEventPort(
        Script([(5, "new", AT)], [(5, "new")], [(5, "t5", "order", "PENDING", 2, AT, "new", AT + MINUTE)])  # type: ignore[arg-type]
    )
    assert await port.renew([key], 60.0, LIMIT_S) == {key: NOW}
    assert await port.release([key], LIMIT_S) == [key]
    [recovered] = await port.reap(10, LIMIT_S)
    assert (recovered.status, recovered.stale_s, recovered.token) == (Status.PENDING, 60.0, "new")


async def test_an_operator_sees_events_and_counts():
    row = (5, "t5", "order", "a", "order", "{}", None, "FAILED", 0, AT, AT + MINUTE, None, 1, 5, None, None, "no", None)
    admin = SqlServerEventAdmin(
        Script([(*row, AT)], [(1, 2, 3, 4, 5, AT, 0, None, 0, AT + MINUTE)], [(7,)], [("t5",)])  # type: ignore[arg-type]
    )
    [found] = await admin.find(Filter(), 5, LIMIT_S)
    assert (found.status, found.created_at, found.due_at) == (Status.FAILED, NOW, NOW + MINUTE)
    assert (found.waits_s, found.held_s, found.processed_at, found.last_error) == (60.0, None, None, "no")
    stats = await admin.stats(LIMIT_S)
    assert (stats.completed, stats.oldest_pending_age_s, stats.reaper_ran_s_ago) == (3, 60.0, None)
    assert await admin.purge(Filter(), 5, LIMIT_S, dry_run=True) == 5
    assert await admin.redrive(Filter(), "cause", 5, 0.0, LIMIT_S) == ["t5"]
