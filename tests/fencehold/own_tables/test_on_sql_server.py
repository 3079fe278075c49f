"""What SQL Server is sent, and what its answers mean, without a server."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from fencehold import LeaseLost, Unavailable
from fencehold.backends.sqlserver.own_tables import SqlServerOwnTables
from fencehold.backends.sqlserver.params import own
from fencehold.own_tables import Row, Statement, Steps
from tests.fencehold.own_tables.notebook import PACKAGE, TABLE
from tests.tidy.tree import ROOT
from tests.tidy.tsql import batches, parsed

NOON = dt.datetime(2026, 3, 4, 12, tzinfo=dt.timezone(dt.timedelta(hours=1)))
NOTES = ROOT / "tests" / "fencehold" / "own_tables" / "notes" / "sql" / "sqlserver"


class FakeTerm:
    name, holder_id, epoch, remaining_s = "writer", "me", 7, 30.0

    def check(self) -> None:
        return None

    def lost(self, why: str) -> LeaseLost:
        return LeaseLost(why)

    def guard(self) -> Any:
        raise AssertionError("the fence is in the batch")

    transaction = guard


class Scripted:
    """In place of the pool: keeps what it is asked, and answers with the next of its answers."""

    def __init__(self, *answers: list[Row] | Exception) -> None:
        self.asked: list[Statement] = []
        self._answers = list(answers)

    async def run(self, statement: Statement, limit_s: float) -> list[Row]:
        self.asked.append(statement)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def close(self) -> None:
        return None


def tables(pool: Scripted) -> SqlServerOwnTables:
    made = SqlServerOwnTables("mssql://u@h/d", PACKAGE, TABLE, connections=1, fenced=1, name="notes")
    made._fenced = pool  # type: ignore[assignment]
    return made


def two() -> Steps[list[Row]]:
    first = yield Statement("write", {"id": "a"}, may_repeat=False)
    second = yield Statement("read", {"ids": ["a"]})
    return first + second


def test_the_statements_of_these_tests_are_tsql():
    for path in NOTES.rglob("*.sql"):
        assert all(parsed(batch) for batch in batches(path.read_text("utf-8"))), path


def test_parameters_are_sent_in_the_form_that_the_driver_takes():
    assert own({"none": None, "at": NOON, "number": 3, "bytes": b"x"}) == {
        "none": "", "at": "2026-03-04T11:00:00.000000", "number": 3, "bytes": b"x",
    }  # fmt: skip


def test_a_list_is_sent_as_rows_and_its_texts_without_what_json_would_escape():
    texts = own({"ids": ["a%", '"']})["ids"]
    assert texts == '[{"place": 0, "id": "a%25"}, {"place": 1, "id": "%22"}]'
    rows = own({"rows": [{"at": NOON, "id": "\\\\", "length": 2, "none": None}]})["rows"]
    assert rows == '[{"place": 0, "at": "2026-03-04T11:00:00.000000", "id": "%5C%5C", "length": 2, "none": null}]'


async def test_each_statement_under_a_fence_is_sent_what_its_own_fence_needs():
    pool = Scripted([{"verdict": "written"}], [{"note_id": "a"}])
    assert await tables(pool).fenced(FakeTerm(), two()) == [{"verdict": "written"}, {"note_id": "a"}]
    fence = {"name": "writer", "holder": "me", "epoch": 7, "wait_ms": 5000}
    assert [(one.params, one.may_repeat) for one in pool.asked] == [
        ({"id": "a", **fence}, False), ({"ids": ["a"], **fence}, True),
    ]  # fmt: skip


async def test_a_batch_whose_fence_refuses_is_a_lost_lease_and_the_rest_is_not_sent():
    pool = Scripted([{"verdict": "lost"}])
    with pytest.raises(LeaseLost, match="nothing was written"):
        await tables(pool).fenced(FakeTerm(), two())
    assert len(pool.asked) == 1


@pytest.mark.parametrize("answer", [[{"verdict": "busy"}], Unavailable("a row is locked", code="busy")])
async def test_a_lock_in_the_way_of_a_batch_costs_nobody_the_lease(answer):
    with pytest.raises(Unavailable) as caught:
        await tables(Scripted(answer)).fenced(FakeTerm(), two())
    assert caught.value.code == "locked"


async def test_an_outage_stays_an_outage():
    with pytest.raises(Unavailable) as caught:
        await tables(Scripted(Unavailable("gone", code="unreachable"))).fenced(FakeTerm(), two())
    assert caught.value.code == "unreachable"
