"""Tests with faults before, during and after a write.

No call reports a false success, calls end within their limit, and clients recover without help.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import pytest

from fencehold.model.election.rules import Lease, Refusal, TermKey
from fencehold.model.errors import FenceholdError, LeaseLost, Unavailable, Uncertain
from fencehold.ports.backend import Backend
from fencehold.testing.conformance.leases.fences import fenced, is_let_in
from fencehold.testing.conformance.suite import (
    LEASE,
    LEASE_S,
    START,
    LeaseTests,
    Supply,
    ask,
    client_at_start,
    granted,
    needs,
    renew,
    row,
    take,
)
from fencehold.testing.harness import CALL_LIMIT_S, Can, Harness
from fencehold.testing.proxy import Fault, FaultProxy

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


def all_calls(backend: Backend, key: TermKey) -> dict[str, Call]:
    return {
        **writing_calls(backend, key),
        "read": lambda: backend.leases.read([key.name], LIMIT_S),
        "list": lambda: backend.leases.list("", LIMIT_S),
    }


async def well_again(backend: Backend, name: str) -> None:
    """Wait until calls of this client succeed again without any help.

    Fails with TimeoutError if that takes too long.
    """
    async with asyncio.timeout(WELL_AGAIN_S):
        while True:
            try:
                await backend.leases.read([name], LIMIT_S)
            except (Unavailable, Uncertain):
                await asyncio.sleep(0.02)
            else:
                return


async def seen_by(backend: Backend, name: str, holder: str) -> Lease:
    """Wait until the lease belongs to `holder`, by a request whose answer was lost, and return the lease."""
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


@dataclass(frozen=True)
class Network:
    """A client behind a proxy, the key of the lease "job" that it acquired, and a client that is not disturbed."""

    proxy: FaultProxy
    backend: Backend
    key: TermKey
    direct: Backend


async def network_at_start(harness: Harness) -> Network:
    direct = await client_at_start(harness)
    proxy, backend = await harness.network()
    return Network(proxy, backend, await take(backend, "job", "ada"), direct)


@needs(Can.NETWORK)
class NetworkFaults(LeaseTests):
    supplies: ClassVar[Mapping[str, Supply]] = {"net": network_at_start}

    async def test_cut_before_the_request_nothing_is_granted_or_changed(self, net: Network) -> None:
        before = await row(net.direct, "job")
        net.proxy.cut()
        for call in all_calls(net.backend, net.key).values():
            with pytest.raises((Unavailable, Uncertain)):
                await call()
        assert await row(net.direct, "job") == before
        net.proxy.heal()
        await well_again(net.backend, "job")
        granted(await renew(net.backend, net.key))

    @pytest.mark.parametrize("fault", [Fault.RESET_ONE, Fault.CLOSE_ALL, Fault.DROP_ANSWERS, Fault.FREEZE])
    async def test_a_lost_answer_to_acquire_is_uncertain_and_the_repeat_knows_its_own_grant(
        self, net: Network, fault: Fault
    ) -> None:
        trip = net.proxy.when_seen(b"the one lost name", fault)
        request = ask("the one lost name", "ada", nonce="the same both times")
        with pytest.raises(Uncertain):
            await net.backend.leases.acquire(request, LIMIT_S)
        await trip.wait()
        executed = await seen_by(net.direct, request.name, "ada")
        assert isinstance(await net.direct.leases.acquire(ask(request.name, "bob"), CALL_LIMIT_S), Refusal)
        net.proxy.heal()
        await well_again(net.backend, request.name)
        again = granted(await net.backend.leases.acquire(request, CALL_LIMIT_S))
        assert (again.epoch, again.expires_at) == (executed.epoch, executed.expires_at) == (1, START + LEASE)

    async def test_a_lost_answer_to_a_renewal_is_uncertain_and_the_lease_goes_on(
        self, harness: Harness, net: Network
    ) -> None:
        await harness.set_clock(START + LEASE / 2)
        net.proxy.drop_answers()
        with pytest.raises(Uncertain):
            await net.backend.leases.renew([net.key], LIMIT_S)
        net.proxy.heal()
        await well_again(net.backend, "job")
        assert granted(await renew(net.backend, net.key)).epoch == 1
        assert (await row(net.direct, "job")).expires_at == START + LEASE * 1.5

    async def test_cut_after_the_answer_the_lease_is_still_held(self, net: Network) -> None:
        net.proxy.close_all()
        await well_again(net.backend, "job")
        assert granted(await renew(net.backend, net.key)).epoch == net.key.epoch

    async def test_on_a_frozen_connection_every_call_returns_within_its_limit(self, net: Network) -> None:
        net.proxy.freeze()
        for title, call in all_calls(net.backend, net.key).items():
            begun_s = time.monotonic()
            with pytest.raises((Unavailable, Uncertain)):
                await call()
            assert time.monotonic() - begun_s < LIMIT_S + SLACK_S, title
        assert (await row(net.direct, "job")).holder_id == "ada"
        net.proxy.heal()
        await well_again(net.backend, "job")

    @needs(Can.FENCES)
    async def test_a_frozen_fenced_transaction_ends_with_its_term_and_writes_nothing(
        self, harness: Harness, net: Network
    ) -> None:
        ends_s = time.monotonic() + TERM_S
        with pytest.raises(LeaseLost):
            await fenced(
                harness, net.backend, net.key, 1, net.proxy.freeze, 2, remaining_s=lambda: ends_s - time.monotonic()
            )
        assert time.monotonic() < ends_s + SLACK_S
        assert await harness.written() == []

    @needs(Can.FENCES)
    async def test_a_connection_cut_inside_the_body_writes_nothing(self, harness: Harness, net: Network) -> None:
        with pytest.raises(FenceholdError):
            await fenced(harness, net.backend, net.key, 1, net.proxy.cut, 2)
        assert await harness.written() == []
        net.proxy.heal()
        await well_again(net.backend, "job")
        await fenced(harness, net.backend, net.key, 3)
        assert await harness.written() == [3]

    @needs(Can.FENCES)
    async def test_a_lost_answer_to_the_commit_is_uncertain(self, harness: Harness, net: Network) -> None:
        ends_s = time.monotonic() + TERM_S
        lose = functools.partial(net.proxy.when_seen, harness.traits.commit_bytes, Fault.DROP_ANSWERS)
        with pytest.raises(Uncertain):
            await fenced(harness, net.backend, net.key, 1, lose, remaining_s=lambda: ends_s - time.monotonic())
        assert await harness.written() in ([], [1])

    @needs(Can.FENCES)
    async def test_a_commit_that_never_arrived_is_no_yes(self, harness: Harness, net: Network) -> None:
        with pytest.raises((Unavailable, Uncertain)):
            await fenced(harness, net.backend, net.key, 1, net.proxy.cut)
        assert await harness.written() == []

    async def test_many_calls_at_once_through_a_reset_each_have_an_honest_answer(self, net: Network) -> None:
        trip = net.proxy.when_seen(b"job 5", Fault.RESET_ONE)
        calls = (net.backend.leases.acquire(ask(f"job {n}", "ada", f"n{n}", LEASE_S), 5.0) for n in range(10))
        answers = await asyncio.gather(*calls, return_exceptions=True)
        await trip.wait()
        rows = await net.direct.leases.read([f"job {n}" for n in range(10)], CALL_LIMIT_S)
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
