"""Items without an event loop."""

from collections.abc import Iterator
from typing import Any

import pytest

import fencehold
from fencehold import sync
from fencehold.sync import items as sync_items
from tests.fencehold.runtime.items.conftest import KIND


@pytest.fixture
def store(url: str) -> Iterator[sync.Store]:
    with sync.connect(url) as store:
        store.init()
        yield store


def test_a_block_keeps_the_item_and_gives_it_back(store: sync.Store) -> None:
    items, others = store.items(KIND), store.items(KIND)
    items.put("n", state="A", document={"n": 1})
    with items.acquire("n") as item:
        item.save(state="B", document={"n": 2})
        assert (item.state, item.document, item.is_valid, item.id) == ("B", {"n": 2}, True, "n")
        assert items.renew(item) == [item]
        with pytest.raises(fencehold.AlreadyLeased):
            others.acquire("n")
    assert not item.is_valid
    (taken,) = others.next_for_state("B")
    others.save(taken, state="C")
    others.break_lease(taken)
    last = items.acquire("n")
    items.delete(last)
    assert (items.get("n"), items.find()) == (None, [])


def test_a_block_that_raises_gives_the_item_back_and_one_that_lost_it_raises(store: sync.Store) -> None:
    items = store.items(KIND, holder_id="me")
    items.put("n", state="A", document=1)

    def fail() -> None:
        with items.acquire("n"):
            raise ZeroDivisionError

    def lose() -> None:
        with items.acquire("n"):
            items.break_lease("n")

    with pytest.raises(ZeroDivisionError):
        fail()
    found = items.get("n")
    assert found is not None
    assert found.holder_id is None
    with pytest.raises(fencehold.LeaseLost):
        lose()


def test_plain_functions_process_items_until_told_to_stop(store: sync.Store) -> None:
    items = store.items(KIND)
    for n in range(6):
        items.put(str(n), state="A", document=n)

    def handle(item: sync_items.Item) -> None:
        item.save(state="B")
        if not items.find("A"):
            processor.stop()

    processor = items.process("A", handle, concurrency=2, poll_every="20ms")
    processor.run()
    assert len(items.find("B")) == 6
    for wrong in (None, yields):
        with pytest.raises(fencehold.ConfigurationError):
            items.process("A", wrong)  # type: ignore[arg-type]


def yields(item: sync_items.Item) -> Iterator[None]:
    yield


def test_what_was_only_seen_gives_no_right_to_write(store: sync.Store) -> None:
    items: Any = store.items(KIND)
    seen = items.put("n", state="A", document=1)
    for verb in (items.delete, items.renew, lambda given: items.save(given, state="B")):
        with pytest.raises(fencehold.ConfigurationError) as refused:
            verb(seen)
        assert refused.value.code == "bad_item"
        assert "no right to write; acquire it" in refused.value.hint


def test_a_search_for_nothing_is_refused_without_a_word_about_leasing(store: sync.Store) -> None:
    with pytest.raises(fencehold.ConfigurationError) as refused:
        store.items(KIND).find(limit=0)
    assert "ease" not in refused.value.hint


def test_a_second_block_is_called_by_its_name(store: sync.Store) -> None:
    items = store.items(KIND)
    items.put("n", state="A", document=1)
    with items.acquire("n") as item, pytest.raises(fencehold.ConfigurationError) as twice:
        item.__enter__()
    assert "async" not in str(twice.value)
