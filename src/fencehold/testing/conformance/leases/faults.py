"""Faults before, during and after a write: no false success, calls end within their limit, clients recover alone."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable

import pytest

from fencehold.model.election.leases import Lease, Refusal, TermKey
from fencehold.model.errors import FenceholdError, LeaseLost, Unavailable, Uncertain
from fencehold.ports.backend import Backend
from fencehold.testing.conformance.leases.fences import fenced, is_let_in
from fencehold.testing.conformance.suite import (
    LEASE,
    LEASE_S,
    START,
    LeaseTests,
    ask,
    granted,
    needs,
    renew,
    row,
    take,
)
from fencehold.testing.harness import CALL_LIMIT_S, Can, Harness
from fencehold.testing.proxy import Fault

LIMIT_S = 0.25
TERM_S = 0.6
SLACK_S = 2.0  # for a slow machine; a call without a limit would wait for ever
WELL_AGAIN_S = 20.0

Call = Callable[[], Awaitable[object]]


def writing_calls(backend: Backend, key: TermKey) -> dict[str, Call]:
    return {
        "acquire": lambda: backend.leases.acquire(ask(key.name, "bob"), LIMIT_S),
        "renew": lambda: backend.leases.renew([key], LIMIT_S),
        "release": lambda: backend.leases.release([key], LIMIT_S),
        "ask_step_down": lambda: backend.leases.ask_step_down(key.name, key.epoch, LIMIT_S),
    }


def reading_calls(backend: Backend, key: TermKey) -> dict[str, Call]:
    return {
        "read": lambda: backend.leases.read([key.name], LIMIT_S),
        "list": lambda: backend.leases.list("", LIMIT_S),
    }


async def well_again(backend: Backend, name: str) -> None:
    """Wait until the same client works again without any help; fail if that takes too long."""
    async with asyncio.timeout(WELL_AGAIN_S):
        while True:
            try:
                await backend.leases.read([name], LIMIT_S)
            except (Unavailable, Uncertain):
                await asyncio.sleep(0.02)
            else:
                return


async def seen_by(backend: Backend, name: str, holder: str) -> Lease:
    """Wait until the store has executed a request whose answer was lost, and return the row."""
    async with asyncio.timeout(CALL_LIMIT_S):
        while True:
            rows = await backend.leases.read([name], CALL_LIMIT_S)
            if name in rows and rows[name].holder_id == holder:
                return rows[name]
            await asyncio.sleep(0.01)


@needs(Can.OBSTRUCTION)
class Obstruction(LeaseTests):
    async def test_while_obstructed_every_write_says_so_and_changes_nothing(
        self, harness: Harness, backend: Backend, key: TermKey
    ) -> None:
        before = await row(backend, "job")
        async with harness.obstructed():
            for call in writing_calls(backend, key).values():
                with pytest.raises(Unavailable) as caught:
                    await call()
                assert caught.value.code == "busy"
            if harness.can(Can.FENCES):
                with pytest.raises(Unavailable):
                    async with backend.fences.transaction(key, lambda: LIMIT_S):
                        pytest.fail("a transaction began in an obstructed store")
        assert await row(backend, "job") == before
        granted(await renew(backend, key))
        await is_let_in(harness, backend, key)


@needs(Can.NETWORK)
class NetworkFaults(LeaseTests):
    async def test_cut_before_the_request_nothing_is_granted_or_changed(self, harness: Harness) -> None:
        direct = await harness.client()
        proxy, backend = await harness.network()
        await harness.set_clock(START)
        key = await take(backend, "job", "ada")
        before = await row(direct, "job")
        proxy.cut()
        for call in (*writing_calls(backend, key).values(), *reading_calls(backend, key).values()):
            with pytest.raises((Unavailable, Uncertain)):
                await call()
        assert await row(direct, "job") == before
        proxy.heal()
        await well_again(backend, "job")
        granted(await renew(backend, key))

    @pytest.mark.parametrize("fault", [Fault.RESET_ONE, Fault.CLOSE_ALL, Fault.DROP_ANSWERS, Fault.FREEZE])
    async def test_a_lost_answer_to_acquire_is_uncertain_and_the_repeat_knows_its_own_grant(
        self, harness: Harness, fault: Fault
    ) -> None:
        direct = await harness.client()
        proxy, backend = await harness.network()
        await harness.set_clock(START)
        trip = proxy.when_seen(b"the one lost name", fault)
        request = ask("the one lost name", "ada", nonce="the same both times")
        with pytest.raises(Uncertain):
            await backend.leases.acquire(request, LIMIT_S)
        await trip.wait()
        executed = await seen_by(direct, request.name, "ada")
        assert isinstance(await direct.leases.acquire(ask(request.name, "bob"), CALL_LIMIT_S), Refusal)
        proxy.heal()
        await well_again(backend, request.name)
        again = granted(await backend.leases.acquire(request, CALL_LIMIT_S))
        assert (again.epoch, again.expires_at) == (executed.epoch, executed.expires_at) == (1, START + LEASE)

    async def test_a_lost_answer_to_a_renewal_is_uncertain_and_the_lease_goes_on(self, harness: Harness) -> None:
        direct = await harness.client()
        proxy, backend = await harness.network()
        await harness.set_clock(START)
        key = await take(backend, "job", "ada")
        await harness.set_clock(START + LEASE / 2)
        proxy.drop_answers()
        with pytest.raises(Uncertain):
            await backend.leases.renew([key], LIMIT_S)
        proxy.heal()
        await well_again(backend, "job")
        assert granted(await renew(backend, key)).epoch == 1
        assert (await row(direct, "job")).expires_at == START + LEASE * 1.5

    async def test_cut_after_the_answer_the_lease_is_still_held(self, harness: Harness) -> None:
        proxy, backend = await harness.network()
        key = await take(backend, "job", "ada")
        proxy.close_all()
        await well_again(backend, "job")
        assert granted(await renew(backend, key)).epoch == key.epoch

    async def test_on_a_frozen_connection_every_call_returns_within_its_limit(self, harness: Harness) -> None:
        direct = await harness.client()
        proxy, backend = await harness.network()
        key = await take(backend, "job", "ada")
        proxy.freeze()
        for title, call in {**writing_calls(backend, key), **reading_calls(backend, key)}.items():
            begun_s = time.monotonic()
            with pytest.raises((Unavailable, Uncertain)):
                await call()
            assert time.monotonic() - begun_s < LIMIT_S + SLACK_S, title
        assert (await row(direct, "job")).holder_id == "ada"
        proxy.heal()
        await well_again(backend, "job")

    @needs(Can.FENCES)
    async def test_a_frozen_fenced_transaction_ends_with_its_term_and_writes_nothing(self, harness: Harness) -> None:
        proxy, backend = await harness.network()
        key = await take(backend, "job", "ada")
        ends_s = time.monotonic() + TERM_S
        with pytest.raises(LeaseLost):
            await fenced(harness, backend, key, 1, proxy.freeze, 2, remaining_s=lambda: ends_s - time.monotonic())
        assert time.monotonic() < ends_s + SLACK_S
        assert await harness.written() == []

    @needs(Can.FENCES)
    async def test_a_connection_cut_inside_the_body_writes_nothing(self, harness: Harness) -> None:
        proxy, backend = await harness.network()
        key = await take(backend, "job", "ada")
        with pytest.raises(FenceholdError):
            await fenced(harness, backend, key, 1, proxy.cut, 2)
        assert await harness.written() == []
        proxy.heal()
        await well_again(backend, "job")
        await fenced(harness, backend, key, 3)
        assert await harness.written() == [3]

    @needs(Can.FENCES)
    async def test_a_lost_answer_to_the_commit_is_uncertain(self, harness: Harness) -> None:
        proxy, backend = await harness.network()
        key = await take(backend, "job", "ada")
        ends_s = time.monotonic() + TERM_S
        lose = functools.partial(proxy.when_seen, harness.traits.commit_bytes, Fault.DROP_ANSWERS)
        with pytest.raises(Uncertain):
            await fenced(harness, backend, key, 1, lose, remaining_s=lambda: ends_s - time.monotonic())
        assert await harness.written() in ([], [1])

    @needs(Can.FENCES)
    async def test_a_commit_that_never_arrived_is_no_yes(self, harness: Harness) -> None:
        proxy, backend = await harness.network()
        key = await take(backend, "job", "ada")
        with pytest.raises((Unavailable, Uncertain)):
            await fenced(harness, backend, key, 1, proxy.cut)
        assert await harness.written() == []

    async def test_many_calls_at_once_through_a_reset_each_have_an_honest_answer(self, harness: Harness) -> None:
        direct = await harness.client()
        proxy, backend = await harness.network()
        await harness.set_clock(START)
        trip = proxy.when_seen(b"job 5", Fault.RESET_ONE)
        calls = (backend.leases.acquire(ask(f"job {n}", "ada", f"n{n}", LEASE_S), 5.0) for n in range(10))
        answers = await asyncio.gather(*calls, return_exceptions=True)
        await trip.wait()
        rows = await direct.leases.read([f"job {n}" for n in range(10)], CALL_LIMIT_S)
        for number, answer in enumerate(answers):
            name = f"job {number}"
            match answer:
                case Lease():
                    assert rows[name].holder_id == "ada", "a yes without a row"
                case Uncertain():
                    pass
                case Unavailable():
                    assert name not in rows, "said to be unchanged, and changed"
                case _:
                    raise AssertionError(f"{name}: {answer!r}")
        assert isinstance(answers[5], Uncertain)
