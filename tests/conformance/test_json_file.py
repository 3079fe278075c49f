"""The toy backend and the conformance suite, as far as it goes with leases alone.

What the suite does under a fence is left out; the classes at the end do the same without one.
"""

import asyncio
import datetime as dt
import json
import os
import sys
from pathlib import Path

import pytest

import fencehold
from examples.json_file_backend import JsonFileBackend, store
from fencehold.backends.absent import no_items, no_outbox
from fencehold.cli.doctor.store import of_items
from fencehold.model.election.leases import Lease, Refusal, TermKey
from fencehold.model.errors import ConfigurationError, LeaseLost, Unavailable
from fencehold.ports.checkup import State, TablesMade
from fencehold.testing import conformance
from fencehold.testing.conformance.leases.faults import LIMIT_S, writing_calls
from fencehold.testing.conformance.suite import LEASE, START, Suite, ask, granted, plenty, release, renew, row, take
from fencehold.testing.harness import CALL_LIMIT_S, Harness
from tests.conformance.json_file_harness import JsonFileHarness

CONTENDERS, ROUNDS = 32, 6
PROCESSES, TURNS = 3, 6
HOURS = dt.timedelta(hours=7)
KEY = TermKey("job", "ada", 1, 60.0)

TAKING_TURNS = """
import asyncio, json, sys
from examples.json_file_backend import JsonFileBackend
from fencehold.model.election.leases import Ask, Lease

async def main(path, who, turns):
    leases, epochs = JsonFileBackend(path).leases, []
    while len(epochs) < turns:
        answer = await leases.acquire(Ask("job", who, 60.0, f"{who}, turn {len(epochs)}"), 20.0)
        if isinstance(answer, Lease):
            epochs.append(answer.epoch)
            await asyncio.sleep(0.005)
            [gone] = await leases.release([answer.key(60.0)], 20.0)
            assert isinstance(gone, Lease), gone
        await asyncio.sleep(0.002)
    print(json.dumps(epochs))

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


@pytest.fixture
def harness(tmp_path: Path) -> JsonFileHarness:
    return JsonFileHarness(tmp_path / "leases.json")


class TestRules(conformance.Rules): ...


class TestVerbs(conformance.Verbs): ...


class TestSilence(conformance.Silence): ...


class TestWalk(conformance.Walk): ...


class TestNames(conformance.Names):
    test_the_longest_name_and_holder_fit = None  # type: ignore[assignment]


class TestTimes(conformance.Times):
    test_a_clock_that_is_hours_off_changes_nothing = None  # type: ignore[assignment]
    test_a_jump_forward_gives_the_lease_away_and_stops_the_first_holder = None  # type: ignore[assignment]
    test_a_jump_back_keeps_the_holder_and_the_epoch_rising = None  # type: ignore[assignment]
    test_a_stale_token_stays_stale_when_the_clock_goes_back = None  # type: ignore[assignment]
    test_the_local_limit_is_honoured_whatever_the_store_says = None  # type: ignore[assignment]


class TestCrowd(Suite):
    async def test_of_32_at_once_exactly_one_is_granted_in_every_round(self, harness: Harness) -> None:
        clients = [await harness.client() for _ in range(CONTENDERS)]
        for epoch in range(1, ROUNDS + 1):
            asks = (ask("job", f"holder {n}", f"{n} for {epoch}") for n in range(CONTENDERS))
            calls = (client.leases.acquire(one, CALL_LIMIT_S) for client, one in zip(clients, asks, strict=True))
            answers = await asyncio.gather(*calls)
            [lease] = [answer for answer in answers if isinstance(answer, Lease)]
            assert lease.epoch == epoch
            granted(await release(clients[0], lease.key(60.0)))

    async def test_processes_take_turns_without_a_double_grant(self, harness: JsonFileHarness) -> None:
        command = [sys.executable, "-c", TAKING_TURNS, harness.path]
        folders = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
        processes = [
            await asyncio.create_subprocess_exec(
                *command, f"process {n}", str(TURNS), stdout=asyncio.subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": folders},
            )
            for n in range(PROCESSES)
        ]  # fmt: skip
        told = await asyncio.gather(*(process.communicate() for process in processes))
        epochs = [epoch for out, _ in told for epoch in json.loads(out)]
        assert sorted(epochs) == list(range(1, PROCESSES * TURNS + 1))


class TestClock(Suite):
    async def test_a_jump_forward_gives_the_lease_away_and_a_jump_back_does_not_return_it(
        self, harness: Harness
    ) -> None:
        one, two = await harness.client(), await harness.client()
        await harness.set_clock(START)
        first = await take(one, "job", "ada")
        await harness.set_clock(START - HOURS)
        assert isinstance(await two.leases.acquire(ask("job", "bob"), CALL_LIMIT_S), Refusal)
        await harness.set_clock(START + LEASE)
        assert (await take(two, "job", "bob")).epoch == first.epoch + 1
        await harness.set_clock(START)
        assert isinstance(await renew(one, first), Refusal)


class TestObstruction(Suite):
    async def test_while_obstructed_every_write_says_so_and_changes_nothing(self, harness: Harness) -> None:
        backend = await harness.client()
        await harness.set_clock(START)
        key = await take(backend, "job", "ada")
        before = await row(backend, "job")
        async with harness.obstructed():
            for call in writing_calls(backend, key).values():
                with pytest.raises(Unavailable) as caught:
                    await call()
                assert caught.value.code == "busy"
            assert await row(backend, "job") == before, "a reader needs no lock"
        granted(await renew(backend, key))


# The file


async def test_a_missing_file_is_not_made_by_any_verb(tmp_path: Path):
    path = tmp_path / "nowhere.json"
    backend = JsonFileBackend(str(path))
    calls = {**writing_calls(backend, KEY), "read": lambda: backend.leases.read(["job"], LIMIT_S)}
    for call in calls.values():
        with pytest.raises(ConfigurationError) as caught:
            await call()
        assert caught.value.code == "schema_missing"
    assert not path.exists()
    assert [await backend.schema.init(1.0) for _ in range(2)] == [[str(path)], []]
    assert await backend.schema.fault(1.0) is None


@pytest.mark.parametrize("text", ["", "[]", '{"job": {}}', '{"job": 1}', "\x00"])
async def test_a_file_of_something_else_is_named_and_left_alone(tmp_path: Path, text: str):
    path = tmp_path / "leases.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError) as caught:
        await JsonFileBackend(str(path)).leases.acquire(ask("job", "ada"), 1.0)
    assert caught.value.code == "bad_url"
    assert path.read_text(encoding="utf-8") == text


async def test_a_write_that_fails_changes_nothing_and_says_so(tmp_path: Path):
    path = tmp_path / "leases.json"
    backend = JsonFileBackend(str(path))
    await backend.schema.init(1.0)
    key = await take(backend, "job", "ada")
    before = path.read_bytes()
    (tmp_path / "leases.json.new").mkdir()
    with pytest.raises(Unavailable) as caught:
        await renew(backend, key)
    assert caught.value.code == "store_error"
    assert path.read_bytes() == before


# What it lacks


async def test_a_leader_leads_on_it_and_what_is_absent_is_refused_with_a_code(tmp_path: Path):
    async with store(str(tmp_path / "leases.json")) as opened:
        await opened.init()
        async with opened.leader("nightly", lease="2s") as leader:
            assert await leader.wait_for_leadership(10)
            assert leader.term is not None
            assert leader.term.epoch == 1
            with pytest.raises(fencehold.ConfigurationError) as fenced:
                async with leader.term.transaction():
                    pytest.fail("a transaction without a database")
        with pytest.raises(fencehold.ConfigurationError) as added:
            await opened.outbox().add("order.created", {})
        with pytest.raises(fencehold.ConfigurationError) as put:
            await opened.items("thing").put("1", state="NEW", document={})
        assert [caught.value.code for caught in (fenced, added, put)] == ["no_transactions", "no_outbox", "no_items"]
        assert await opened.checkup.tables_made() == TablesMade()
        faults = await opened.checkup.faults(["fencehold_outbox"])
        assert {fault.code for fault in faults.values() if fault} == {"no_outbox", "no_items"}
        assert of_items(faults, {})[0].state is State.SKIPPED, "the doctor passes it over"


async def test_every_fence_of_a_store_without_fences_is_refused_and_a_term_that_is_over_is_lost():
    fences = JsonFileBackend("never opened").fences
    calls = (lambda: fences.transaction(KEY, plenty), lambda: fences.transaction_sync(KEY, plenty),
             lambda: fences.fence(object(), KEY), lambda: fences.guard(KEY))  # fmt: skip
    for call in calls:
        with pytest.raises(ConfigurationError) as caught:
            call()
        assert caught.value.code == "no_transactions"
        assert "A JSON file" in caught.value.message
    with pytest.raises(LeaseLost):
        fences.fence(object(), KEY, over=True)
    await fences.spoil(object())
    await fences.close()


def test_what_is_absent_is_said_in_the_name_of_the_store():
    for error in (no_outbox("Etcd"), no_items("Etcd")):
        assert error.message.startswith("Etcd ")
        assert error.hint
