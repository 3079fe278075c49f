"""The backend of the examples: its file, and what it says of the parts that it lacks."""

from pathlib import Path

import pytest

import fencehold
from examples.json_file_backend import JsonFileBackend, store
from fencehold.cli.doctor.store import of_items
from fencehold.model.election.rules import TermKey
from fencehold.model.errors import ConfigurationError, LeaseLost, Unavailable
from fencehold.ports.backend import events_of, items_of
from fencehold.ports.checkup import State, TablesMade
from fencehold.testing.conformance.leases.faults import LIMIT_S, writing_calls
from fencehold.testing.conformance.suite import START, ask, plenty, renew, row, take
from tests.examples.json_file_harness import JsonFileHarness

KEY = TermKey("job", "ada", 1, 60.0)


async def test_a_reader_needs_no_lock(tmp_path: Path):
    harness = JsonFileHarness(tmp_path / "leases.json")
    await harness.open()
    backend = await harness.client()
    await harness.set_clock(START)
    await take(backend, "job", "ada")
    before = await row(backend, "job")
    async with harness.obstructed():
        assert await row(backend, "job") == before
    await harness.close()


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
    backend = JsonFileBackend("never opened")
    for refused in (lambda: events_of(backend, "outbox"), lambda: items_of(backend, "thing")):
        with pytest.raises(ConfigurationError) as caught:
            refused()
        assert " on JSON files" in caught.value.message
        assert caught.value.hint
