"""Handlers of every kind: on the loop, on threads, per type, in batches; and what each kind of failure means."""

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import fencehold
from tests.fencehold.runtime.outbox.conftest import Opened
from tests.fencehold.runtime.outbox.scene import (
    Gate,
    ThreadGate,
    all_are,
    becomes,
    code_of,
    row,
    rows,
    running,
    statuses,
)


async def test_sync_handlers_run_on_threads_side_by_side_and_not_on_the_loop(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, _):
        gate = ThreadGate()
        await outbox.add_many([("a", n) for n in range(5)])
        async with running(outbox.worker(gate, concurrency=3)):
            await gate.has(3)
            assert (await statuses(url)).count("PROCESSING") == 3
            gate.opened.set()
            await all_are(url, "COMPLETED", 5)
        assert gate.most == 3
        assert threading.current_thread().name not in gate.threads


async def test_a_sync_handler_that_raises_fails_its_event(url: str, opened: Opened) -> None:
    def broken(event: fencehold.Claim) -> None:
        raise KeyError(event.payload)

    async with opened(url) as (outbox, _):
        event = await outbox.add("a", "gone")
        async with running(outbox.worker(broken)):
            assert (await becomes(url, event, "FAILED"))["last_error"].startswith("KeyError: 'gone'\n")


async def test_a_plain_function_that_answers_a_coroutine_is_awaited(url: str, opened: Opened) -> None:
    """`lambda event: handle(event)` is easily written; completed without having run would be a lost event."""
    handled = []

    async def handle(event: fencehold.Claim) -> None:
        await asyncio.sleep(0)
        handled.append(event.payload)

    async with opened(url) as (outbox, _):
        event = await outbox.add("a", 7)
        async with running(outbox.worker(lambda claim: handle(claim))):  # noqa: PLW0108 - what is tested
            await becomes(url, event, "COMPLETED")
    assert handled == [7]


async def test_a_sync_handler_that_finished_while_stopping_is_completed(url: str, opened: Opened) -> None:
    """Its cancel comes at nine tenths of the timeout; the thread returns in the last tenth."""
    async with opened(url) as (outbox, heard):
        gate = ThreadGate()
        event = await outbox.add("a", 1)
        worker = outbox.worker(gate, shutdown_timeout="2s")
        task = asyncio.create_task(worker.run())
        await gate.has(1)
        worker.stop()
        await heard.once("worker_stopping")
        asyncio.get_running_loop().call_later(1.85, gate.opened.set)
        await task
        found = await row(url, event)
        assert (found["status"], found["last_error"]) == ("COMPLETED", None)


async def test_partials_and_callable_objects_are_handlers_too(url: str, opened: Opened) -> None:
    seen: list[tuple[str, Any]] = []

    async def named(name: str, event: fencehold.Claim) -> None:
        seen.append((name, event.payload))

    class Object:
        async def __call__(self, event: fencehold.Claim) -> None:
            seen.append(("object", event.payload))

    async with opened(url) as (outbox, _):
        await outbox.add_many([("p", 1), ("o", 2)])
        async with running(outbox.worker({"p": functools.partial(named, "partial"), "o": Object()})):
            await all_are(url, "COMPLETED", 2)
    assert sorted(seen) == [("object", 2), ("partial", 1)]


async def test_a_worker_with_handlers_per_type_claims_only_those_types(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, heard):
        paid, shipped = Gate(is_open=True), Gate(is_open=True)
        ids = dict(zip("pso", await outbox.add_many([("paid", 1), ("shipped", 2), ("other", 3)]), strict=True))
        async with running(outbox.worker({"paid": paid, "shipped": shipped}, poll_every="10ms")):
            await becomes(url, ids["p"], "COMPLETED")
            await becomes(url, ids["s"], "COMPLETED")
            other = await row(url, ids["o"])
        assert (other["status"], other["retry_count"], other["lock_token"]) == ("PENDING", 0, None)
        assert [claim.event_type for claim in paid.entered] == ["paid"]
        assert [claim.event_type for claim in shipped.entered] == ["shipped"]
        assert sum(fact["claimed"] for fact in heard.all("events_claimed")) == 2


async def test_a_star_takes_the_rest(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, _):
        paid, rest = Gate(is_open=True), Gate(is_open=True)
        await outbox.add_many([("paid", 1), ("shipped", 2), ("other", 3)])
        async with running(outbox.worker({"paid": paid, "*": rest})):
            await all_are(url, "COMPLETED", 3)
        assert [claim.event_type for claim in paid.entered] == ["paid"]
        assert {claim.event_type for claim in rest.entered} == {"shipped", "other"}


async def test_a_claim_carries_what_was_added(url: str, opened: Opened) -> None:
    payload: fencehold.Json = {
        "schema_version": 1,
        "text": "Zoë ☃ 𝄞",
        "list": [1, 2.5, None, True],
        "quote": 'a"\\b\nc',
    }
    async with opened(url, max_retries=7) as (outbox, _):
        gate = Gate(is_open=True)
        event = await outbox.add(
            "a", payload, aggregate_id="o-1", aggregate_type="order", priority=3, metadata={"who": "me"}
        )
        async with running(outbox.worker(gate)):
            await gate.has(1)
        claim = gate.entered[0]
        assert (claim.tracking_id, claim.payload, claim.metadata["who"]) == (event, payload, "me")
        assert (claim.aggregate_id, claim.aggregate_type, claim.priority) == ("o-1", "order", 3)
        assert (claim.attempt, claim.max_retries) == (1, 7)


async def test_reject_is_a_dead_letter_at_once(url: str, opened: Opened) -> None:
    async def reject(event: fencehold.Claim) -> None:
        raise fencehold.Reject("no such customer")

    async with opened(url) as (outbox, heard):
        event = await outbox.add("a", 1)
        async with running(outbox.worker(reject)):
            found = await becomes(url, event, "DEAD_LETTER")
        assert (found["retry_count"], found["lock_token"], found["locked_until"]) == (1, None, None)
        assert "no such customer" in found["last_error"]
        assert found["processed_at"] is not None
        assert heard.all("event_failed", status="DEAD_LETTER", attempt=1)


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("cannot even say what it is")


ERRORS: dict[str, tuple[BaseException, str]] = {
    "plain": (ValueError("plain"), "ValueError: plain"),
    "nul": (ValueError("nul\0inside"), "ValueError: nul"),
    "surrogate": (OSError("bad name \udcff"), "OSError: bad name"),
    "long": (ValueError("x" * 10_000), "ValueError: xxx"),
    "quotes": (ValueError("\n'\"\\{}%s:x"), "ValueError: \n'\"\\{}%s:x"),
    "speechless": (Speechless(), "Speechless"),
    "cancelled": (asyncio.CancelledError(), ""),
    "silent": (TimeoutError(), "TimeoutError"),
}


@pytest.mark.fault("callbacks", "outbox")
async def test_whatever_a_handler_raises_is_recorded_and_the_worker_goes_on(url: str, opened: Opened) -> None:
    async def handle(event: fencehold.Claim) -> None:
        if event.payload in ERRORS:
            raise ERRORS[event.payload][0]

    async with opened(url) as (outbox, _), running(outbox.worker(handle, concurrency=1)):
        for name, (_, says) in ERRORS.items():
            found = await becomes(url, await outbox.add("a", name), "FAILED")
            assert says in found["last_error"], name
            assert len(found["last_error"]) <= 2000
        await becomes(url, await outbox.add("a", "good"), "COMPLETED")


async def test_a_password_in_an_error_is_not_kept(url: str, opened: Opened) -> None:
    async def leak(event: fencehold.Claim) -> None:
        raise ConnectionError("postgresql://me:hunter2@db/x is down")

    async with opened(url) as (outbox, heard):
        event = await outbox.add("a", 1)
        async with running(outbox.worker(leak)):
            assert "hunter2" not in (await becomes(url, event, "FAILED"))["last_error"]
        assert "hunter2" not in repr(heard.facts)


async def test_a_batch_handler_gets_lists_of_one_type_no_longer_than_its_size(url: str, opened: Opened) -> None:
    seen: list[list[tuple[str, int]]] = []

    async def handle(batch: list[fencehold.Claim]) -> None:
        seen.append([(claim.event_type, claim.payload) for claim in batch])

    other: list[int] = []

    def others(batch: list[fencehold.Claim]) -> None:
        other.extend(claim.payload for claim in batch)

    async with opened(url) as (outbox, _):
        await outbox.add_many([("a" if n % 3 else "b", n) for n in range(12)])
        async with running(outbox.worker({"a": handle, "b": others}, concurrency=12, batch_size=3)):
            await all_are(url, "COMPLETED", 12)
    assert all(len(batch) <= 3 and {kind for kind, _ in batch} == {"a"} for batch in seen)
    assert sorted(n for batch in seen for _, n in batch) == [1, 2, 4, 5, 7, 8, 10, 11]
    assert max(map(len, seen)) == 3
    assert sorted(other) == [0, 3, 6, 9]


async def test_a_batch_that_fails_fails_whole_and_no_other_batch(url: str, opened: Opened) -> None:
    async def handle(batch: list[fencehold.Claim]) -> None:
        if any(claim.payload == 0 for claim in batch):
            raise RuntimeError("no")

    async with opened(url, retry_base="20s") as (outbox, _):
        await outbox.add_many([("a", n) for n in range(4)])
        async with running(outbox.worker(handle, concurrency=4, batch_size=2)):
            await becomes(url, (await rows(url))[3]["tracking_id"], "COMPLETED")
            await becomes(url, (await rows(url))[0]["tracking_id"], "FAILED")
        assert await statuses(url) == ["FAILED", "FAILED", "COMPLETED", "COMPLETED"]


async def nothing(event: fencehold.Claim) -> None:
    return None


async def yields(event: fencehold.Claim) -> AsyncIterator[None]:
    yield


def yields_now(event: fencehold.Claim) -> Iterator[None]:
    yield


async def test_a_handler_that_returns_a_generator_has_failed(url: str, opened: Opened) -> None:
    def on_a_thread(event: fencehold.Claim) -> Any:
        return yields_now(event)

    async def on_the_loop(event: fencehold.Claim) -> Any:
        return yields(event)

    async with opened(url, retry_base="20s") as (outbox, _):
        ids = [await outbox.add(event_type, 1) for event_type in ("a", "b")]
        async with running(outbox.worker({"a": on_a_thread, "b": on_the_loop})):
            for tracking_id in ids:
                failed = await becomes(url, tracking_id, "FAILED")
                assert "nothing of it was run" in failed["last_error"]


async def test_what_is_no_handler_is_refused(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, _):
        bad: Any
        for bad in (None, 7, {}, {"a": 7}, {7: nothing}, "handler", {"a": None}, yields, {"a": yields_now}):
            with pytest.raises(fencehold.ConfigurationError) as error:
                outbox.worker(bad)
            assert code_of(error) == "bad_handler"
        with pytest.raises(fencehold.ConfigurationError) as error:
            outbox.worker(nothing, saturated=nothing)  # type: ignore[arg-type]
        assert code_of(error) == "bad_handler"


BAD_SETTINGS: list[dict[str, Any]] = [
    {"poll_every": 0}, {"poll_every": "soon"}, {"max_processing": -1}, {"shutdown_timeout": "31s"}, {"batch_size": 0},
    {"batch_size": True},
]  # fmt: skip


async def test_settings_that_cannot_work_are_refused(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, _):
        for settings in BAD_SETTINGS:
            with pytest.raises(fencehold.ConfigurationError) as error:
                outbox.worker(nothing, **settings)
            assert code_of(error) == "bad_settings"


async def test_an_endless_error_text_does_not_hold_up_the_loop(url: str, opened: Opened) -> None:
    """Looking for passwords in it took a second for ten thousand letters, and four times that for twice as many."""

    async def handle(event: fencehold.Claim) -> None:
        raise ValueError("x" * 1_000_000 + "://" + "a:" * 100_000)

    async with opened(url) as (outbox, _):
        event = await outbox.add("a", 1)
        async with running(outbox.worker(handle)), asyncio.timeout(5):
            await becomes(url, event, "FAILED")
