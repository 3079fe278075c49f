"""Items without an event loop."""

from collections.abc import Iterator

import pytest

import fencehold
from fencehold import sync, sync_items
from tests.items.conftest import KIND


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
    with pytest.raises(fencehold.ConfigurationError):
        items.process("A", None)  # type: ignore[arg-type]
