"""A webhook stays owed until somebody who leads has said what became of it."""

import pytest

from fencehold import LeaseLost
from submission_manager.model.intents import ERROR_CHARS_MAX, WebhookStatus
from tests.submission_manager.stores.scene import HOOK, LIMIT_S, ONE_SHOT, SOON, Scene, scene


async def ended(at: Scene, term, *names: str, given=SOON) -> None:
    for name in names:
        await at.submit(name, given)
        at.make_old(name)
        await at.store.attempts.start(term, name, 5.0)


async def owed(at: Scene, limit: int = 10) -> list[str]:
    return [over.intent.intent_id for over in await at.store.attempts.owed_webhooks(limit, LIMIT_S)]


async def test_what_ended_is_owed_in_order_with_all_that_telling_needs(url):
    async with scene(url) as at:
        term = await at.term()
        await ended(at, term, "c", "a", "b")
        await at.submit("pending", SOON)
        assert sorted(await owed(at)) == ["a", "b", "c"]
        assert await owed(at, limit=1) == ["c"]
        (over, *_) = await at.store.attempts.owed_webhooks(1, LIMIT_S)
        assert over.webhook == HOOK
        assert over.intent == await at.store.intake.read("c", LIMIT_S)


async def test_delivered_or_given_up_it_is_owed_no_more(url):
    async with scene(url) as at:
        term = await at.term()
        await ended(at, term, "a", "b")
        _, cursor = await at.rebuilt()
        await at.store.attempts.record_webhook(term, "a", WebhookStatus.DELIVERED, None)
        await at.store.attempts.record_webhook(term, "b", WebhookStatus.FAILED, "503 \0" * 1000)
        assert await owed(at) == []
        assert (at.column("a", "webhook_status"), at.column("a", "webhook_error")) == ("delivered", None)
        assert at.column("a", "webhook_delivered_at") == at.column("a", "webhook_attempted_at")
        assert (at.column("b", "webhook_status"), at.column("b", "webhook_delivered_at")) == ("failed", None)
        assert len(at.column("b", "webhook_error")) == ERROR_CHARS_MAX
        rows, _ = await at.refreshed(cursor)
        assert {row.intent_id for row in rows} == {"a", "b"}, "every update is stamped"


async def test_what_was_delivered_stays_so(url):
    async with scene(url) as at:
        term = await at.term()
        await ended(at, term, "a")
        await at.store.attempts.record_webhook(term, "a", WebhookStatus.DELIVERED, None)
        before = at.everything()
        await at.store.attempts.record_webhook(term, "a", WebhookStatus.FAILED, "late")
        assert at.everything() == before


async def test_a_stale_leader_says_nothing_about_a_webhook(url):
    async with scene(url) as at:
        stale = await at.term()
        await ended(at, stale, "a")
        await at.take_over()
        with pytest.raises(LeaseLost):
            await at.store.attempts.record_webhook(stale, "a", WebhookStatus.DELIVERED, None)
        assert await owed(at) == ["a"]


async def test_an_intent_without_a_webhook_never_owes_one(url):
    async with scene(url) as at:
        term = await at.term()
        await at.submit("a", ONE_SHOT)
        await at.store.attempts.record_webhook(term, "a", WebhookStatus.DELIVERED, None)
        assert at.column("a", "webhook_status") is None
