"""What a service of somebody else's gets: settings checked before any I/O, and a database that is waited for."""

from typing import Any

import pytest

from fencehold import ConfigurationError, Unavailable
from fencehold.service import check_leader, until_answered


class Facts:
    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []

    def fact(self, event: str, **fields: Any) -> None:
        self.told.append((event, fields))


class Asked:
    """Raises each of its errors once, and then answers."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.count = 0

    async def __call__(self) -> str:
        self.count += 1
        if self._errors:
            raise self._errors.pop(0)
        return "here"


@pytest.mark.parametrize(
    "bad",
    [{"name": ""}, {"name": "x" * 65}, {"holder_id": " me"}, {"lease": "no time"}, {"lease": 30, "renew_every": 30}],
)
def test_what_a_leader_would_refuse_is_refused_before(bad):
    with pytest.raises(ConfigurationError):
        check_leader(**bad)


def test_what_a_leader_takes_is_taken():
    check_leader("nightly", holder_id="me", lease="30s", renew_every="10s", acquire_every="15s")


def test_every_problem_of_the_durations_is_in_one_message():
    with pytest.raises(ConfigurationError) as caught:
        check_leader(lease=0, renew_every="never")
    assert all(name in caught.value.message for name in ("lease", "renew_every"))


async def test_a_database_that_is_away_is_waited_for_and_told_of_once():
    facts, ask = Facts(), Asked(Unavailable("gone", code="unreachable"), Unavailable("gone", code="unreachable"))
    assert await until_answered(ask, facts) == "here"
    assert [event for event, _ in facts.told] == ["store_unreachable", "store_answers"]
    assert facts.told[0][1]["error"] == "gone"


async def test_what_no_waiting_mends_is_raised_at_once():
    ask = Asked(ConfigurationError("no such database", code="no_such_database"))
    with pytest.raises(ConfigurationError):
        await until_answered(ask, Facts())
    assert ask.count == 1
