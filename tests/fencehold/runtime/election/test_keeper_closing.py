"""A keeper that is closed ends, on every version of Python."""

import asyncio

import pytest

from fencehold.model.election.rules import Ask
from fencehold.model.election.settings import leader_settings
from fencehold.model.errors import Uncertain
from fencehold.ports.leases import Answer
from fencehold.runtime.election.keeper import Keeper
from tests.fencehold.runtime.election.test_keeper import Bench, Facts, ScriptedPort
from tests.fencehold.testing.simulation.on_virtual_time import LoopClock, virtual


@pytest.mark.limit(10)
async def test_closing_ends_also_if_what_it_waits_for_ends_in_the_very_same_turn_of_the_loop() -> None:
    """From Python 3.12 on it would spin for ever, with the thread on which all stores of the process renew."""

    async def given_back() -> bool:
        return True

    keeper = Keeper(ScriptedPort(), LoopClock(), Facts())
    keeper._in_background(given_back())  # its step comes first, then that of the closing
    await asyncio.wait_for(asyncio.ensure_future(keeper.close()), 5)


class Unheard(ScriptedPort):
    """Grants every request, and lets nobody hear of the first answer."""

    asked = 0

    async def acquire(self, ask: Ask, limit_s: float) -> Answer:
        self.asked += 1
        if self.asked == 1:
            raise Uncertain("no answer")
        return await super().acquire(ask, limit_s)


@pytest.mark.parametrize("gives_back", [True, False])
async def test_closing_gives_back_what_was_perhaps_granted_before_it_also_if_nobody_asks_for_that(
    gives_back: bool,
) -> None:
    port = Unheard()
    keeper = Keeper(port, LoopClock(), Facts())
    settings = leader_settings(lease=9, release_on_stop=gives_back)
    with pytest.raises(Uncertain):
        await keeper.take(Ask("one", "me", 9.0, "nonce"), settings, None)
    await keeper.close()
    assert [key.name for key in port.released] == (["one"] if gives_back else [])


@virtual
async def test_closing_gives_every_lease_back() -> None:
    bench = Bench()
    for name in ("a", "b"):
        await bench.take(name)
    await bench.take("kept", settings=leader_settings(lease=9, release_on_stop=False))
    await bench.keeper.close()
    await bench.running
    assert sorted(key.name for key in bench.port.released) == ["a", "b"]
