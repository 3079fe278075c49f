"""`init` waits for no lock for long on SQL Server either, whose part is played by a stand-in that refuses at first."""

from typing import Any

import pytest

import fencehold
from fencehold.backends.sql.statements import Statements
from fencehold.backends.sqlserver import driver
from fencehold.backends.sqlserver.schema import SqlServerSchema
from tests.fencehold.backends.sqlserver.test_lines import ADDRESS, Made, of

REFUSED = of("ProgrammingError", "x", "Lock request time out period exceeded.")


def a_database_with_old_tables(made: Made, refusals: int) -> None:
    """Whose lock on the table is refused so many times."""
    refused = [REFUSED] * refusals

    def answer(text: str) -> Any:
        if text.lstrip().startswith("ALTER TABLE") or "\nALTER TABLE" in text:
            return refused.pop() if refused else None
        if "AS is_there" in text:
            return [(1,)]
        if "AS locked" in text:
            return [(0,)]
        if "SELECT step FROM" in text:
            return [("0001_leases",)]
        return [] if "AS part" in text else None

    made.answer = answer


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    found = Made()
    monkeypatch.setattr(driver, "connect", found.connect)
    return found


def schema() -> SqlServerSchema:
    return SqlServerSchema(ADDRESS, Statements("fencehold.backends.sqlserver", "fencehold_leases"))


async def test_a_lock_that_is_refused_is_asked_for_again_after_the_transaction_was_rolled_back(made: Made) -> None:
    a_database_with_old_tables(made, refusals=2)
    said: list[str] = []
    assert await schema().init(30.0, said.append) == ["0002_lease_id"]
    texts = made[0].texts
    waits_ms = [int(text.split()[2].rstrip(";")) for text in texts if text.endswith("BEGIN TRANSACTION")]
    assert len(waits_ms) == 3
    assert all(0 < wait_ms <= 1000 for wait_ms in waits_ms)
    assert sum("ROLLBACK TRANSACTION" in text for text in texts) == 2
    assert sum(text == "COMMIT TRANSACTION" for text in texts) == 1
    assert said[0].startswith("The table fencehold_leases is in use")


async def test_a_lock_that_is_never_to_be_had_is_busy(made: Made) -> None:
    a_database_with_old_tables(made, refusals=99)
    with pytest.raises(fencehold.Unavailable) as caught:
        await schema().init(1.0)
    assert caught.value.code == "busy"
    assert "COMMIT TRANSACTION" not in made[0].texts


def test_the_printed_script_waits_for_no_lock_for_long_and_leaves_out_what_is_recorded() -> None:
    script = schema().script()
    assert script.index("SET LOCK_TIMEOUT 1000;") < script.index("BEGIN TRANSACTION")
    for step in ("0001_leases", "0002_lease_id"):
        condition = f"component = 'fencehold_leases' AND step = '{step}')\nEXEC sp_executesql N'"
        assert f'IF NOT EXISTS (SELECT 1 FROM "fencehold_schema" WHERE {condition}' in script
