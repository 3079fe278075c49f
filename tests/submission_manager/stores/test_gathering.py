"""Submissions that arrive together share a statement, and nothing else."""

import asyncio
import datetime as dt

import pytest

from fencehold import Unavailable, Uncertain
from submission_manager.model.intents import Intent, NewIntent, Status
from submission_manager.ports import Submission, Submitted
from submission_manager.stores.gathering import Gathering
from tests.submission_manager.stores.scene import LIMIT_S, ONE_SHOT


class Shelf:
    """Stores batches when it is let to; refuses those with `poison` in them."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.open = asyncio.Event()

    async def store(self, batch: list[NewIntent], limit_s: float) -> list[Submitted]:
        self.batches.append([new.intent_id for new in batch])
        await self.open.wait()
        if "poison" in self.batches[-1]:
            raise Unavailable("refused", code="store_error")
        at = dt.datetime.now(dt.UTC)
        return [Submitted(Submission.CREATED, Intent(n.intent_id, "t", at, Status.PENDING, 0)) for n in batch]


def new(intent_id: str) -> NewIntent:
    return NewIntent(intent_id, None, ONE_SHOT)


async def test_what_arrives_while_a_batch_is_under_way_is_the_next_one():
    shelf = Shelf()
    gathering = Gathering(shelf.store, lanes=1)
    work = [asyncio.ensure_future(gathering.submit(new("first"), LIMIT_S))]
    await asyncio.sleep(0)
    work += [asyncio.ensure_future(gathering.submit(new(one), LIMIT_S)) for one in ("a", "b", "a", "c")]
    await asyncio.sleep(0)
    shelf.open.set()
    assert [answer.intent.intent_id for answer in await asyncio.gather(*work)] == ["first", "a", "b", "a", "c"]
    assert shelf.batches == [["first"], ["a", "b"], ["a", "c"]]
    assert (await gathering.submit(new("later"), LIMIT_S)).kind is Submission.CREATED


async def test_one_that_is_refused_takes_nobody_with_it():
    shelf = Shelf()
    shelf.open.set()
    gathering = Gathering(shelf.store, lanes=1)
    work = (gathering.submit(new(one), LIMIT_S) for one in ("a", "poison", "b"))
    answers = await asyncio.gather(*work, return_exceptions=True)
    assert [type(answer) for answer in answers] == [Submitted, Unavailable, Submitted]


async def test_each_waits_no_longer_than_its_own_limit():
    shelf = Shelf()
    gathering = Gathering(shelf.store, lanes=1)
    sent, waiting = await asyncio.gather(
        gathering.submit(new("a"), 0.01), gathering.submit(new("a"), 0.01), return_exceptions=True
    )
    assert isinstance(sent, Uncertain)
    assert isinstance(waiting, Unavailable)
    shelf.open.set()
    assert (await gathering.submit(new("c"), LIMIT_S)).kind is Submission.CREATED
    assert shelf.batches == [["a"], ["c"]]


async def test_who_waits_when_the_store_closes_is_told():
    gathering = Gathering(Shelf().store, lanes=1)
    work = [asyncio.ensure_future(gathering.submit(new("a"), LIMIT_S)) for _ in range(2)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await gathering.close()
    with pytest.raises(Uncertain):
        await work[0]
    with pytest.raises(Unavailable):
        await work[1]


async def test_who_submits_the_moment_an_answer_comes_finds_a_free_lane():
    shelf = Shelf()
    shelf.open.set()
    gathering = Gathering(shelf.store, lanes=1)
    for one in ("a", "b", "c"):
        assert (await gathering.submit(new(one), LIMIT_S)).kind is Submission.CREATED
