"""Forced delayed durability cannot be overridden: it is said at open, and by doctor. The server is a stand-in."""

from typing import Any

import pytest

import fencehold
from fencehold.backends.sqlserver import driver
from tests.fencehold.backends.sqlserver.test_lines import ADDRESS, Made, of

FORCED = ("DELAYED_DURABILITY is FORCED", "ALTER DATABASE ...")


class Heard:
    def __init__(self) -> None:
        self.facts: list[tuple[str, dict[str, Any]]] = []

    def fact(self, event: str, **fields: Any) -> None:
        self.facts.append((event, fields))


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        ([FORCED], [("store_not_durable", {"detail": FORCED[0], "hint": FORCED[1]})]),
        ([], []),
        (of("ProgrammingError", "x", "no"), []),
    ],
    ids=["forced", "not forced", "cannot say"],
)
async def test_forced_delayed_durability_is_said_at_open(
    monkeypatch: pytest.MonkeyPatch, said: Any, heard: list[Any]
) -> None:
    made, facts = Made(), Heard()
    monkeypatch.setattr(driver, "connect", made.connect)
    made.answer = lambda text: said if "delayed_durability_desc" in text else [(1,)]
    async with fencehold.connect(f"mssql://clerk:secret@127.0.0.1:{ADDRESS.port}/db", facts=facts) as store:
        if not isinstance(said, Exception):
            [condition] = await store.checkup.conditions()
            assert (condition.state == "warning") == bool(said), "and `doctor` says the same"
    assert [fact for fact in facts.facts if fact[0] == "store_not_durable"] == heard
