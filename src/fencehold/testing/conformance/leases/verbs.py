"""Tests what the verbs of leases promise beyond a single rule.

These are epochs, repeated requests, batches in order, and what `read` and `list` show.
"""

from __future__ import annotations

import datetime as dt

from fencehold.model.election.rules import Lease, Refusal, TermKey
from fencehold.ports.backend import Backend
from fencehold.testing.conformance.suite import (
    LEASE,
    LEASE_S,
    START,
    LeaseTests,
    ask,
    granted,
    release,
    renew,
    row,
    take,
)
from fencehold.testing.harness import CALL_LIMIT_S, Harness


class Verbs(LeaseTests):
    async def test_the_epoch_rises_by_one_with_every_acquire_and_never_with_a_renewal(
        self, harness: Harness, backend: Backend
    ) -> None:
        now = START
        for epoch, holder in enumerate(["ada", "ada", "bob", "ada"], start=1):
            await harness.set_clock(now)
            key = await take(backend, "job", holder, nonce=f"turn {epoch}")
            assert key.epoch == epoch
            assert granted(await renew(backend, key)).epoch == epoch
            now += LEASE

    async def test_a_released_lease_keeps_its_epoch_and_is_free_at_once(self, backend: Backend) -> None:
        for epoch in (1, 2, 3):
            key = await take(backend, "job", "ada", nonce=f"turn {epoch}")
            assert key.epoch == epoch
            gone = granted(await release(backend, key))
            assert (gone.epoch, gone.expires_at, gone.remaining_s) == (epoch, START, 0.0)
        assert isinstance(await renew(backend, key), Refusal)
        assert isinstance(await release(backend, key), Refusal)

    async def test_a_repeated_request_gets_the_same_grant_from_another_connection(
        self, harness: Harness, one: Backend, two: Backend
    ) -> None:
        request = ask("job", "ada", nonce="one and the same")
        first = granted(await one.leases.acquire(request, CALL_LIMIT_S))
        await harness.set_clock(START + LEASE / 2)
        again = granted(await two.leases.acquire(request, CALL_LIMIT_S))
        assert (again.epoch, again.acquired_at, again.expires_at) == (1, first.acquired_at, first.expires_at)
        assert again.remaining_s == LEASE_S / 2, "a repeat is trusted for what is left, not for a whole lease"

    async def test_a_refused_acquire_shows_who_holds_it_and_until_when(self, backend: Backend, key: TermKey) -> None:
        answer = await backend.leases.acquire(ask("job", "bob"), CALL_LIMIT_S)
        assert isinstance(answer, Refusal)
        assert answer.current is not None
        assert (answer.current.holder_id, answer.current.expires_at) == ("ada", START + LEASE)

    async def test_a_request_to_step_down_shows_in_the_next_renewal_and_not_in_the_next_term(
        self, one: Backend, two: Backend, key: TermKey
    ) -> None:
        assert granted(await renew(one, key)).step_down_requested is False
        asked = granted(await two.leases.ask_step_down("job", key.epoch, CALL_LIMIT_S))
        assert asked.step_down_requested is True
        assert granted(await renew(one, key)).step_down_requested is True
        await release(one, key)
        assert (await row(two, "job")).epoch == key.epoch
        await take(two, "job", "bob")
        assert (await row(two, "job")).step_down_requested is False

    async def test_a_batch_is_answered_in_order_whatever_is_in_it(self, harness: Harness, backend: Backend) -> None:
        keys = [await take(backend, f"job {n}", "ada", nonce=f"n{n}") for n in range(5)]
        lapsed = await take(backend, "short", "ada", lease_s=1.0)
        await harness.set_clock(START + dt.timedelta(seconds=2))
        foreign = TermKey("job 4", "bob", 1, LEASE_S)
        unknown = TermKey("nobody's", "ada", 1, LEASE_S)
        answers = await backend.leases.renew([keys[3], unknown, keys[0], lapsed, foreign, keys[2]], CALL_LIMIT_S)
        assert [says(answer) for answer in answers] == [
            "job 3",
            "absent",
            "job 0",
            "lapsed",
            "held_by_another",
            "job 2",
        ]
        answers = await backend.leases.release([unknown, keys[4], lapsed, keys[1]], CALL_LIMIT_S)
        assert [says(answer) for answer in answers] == ["absent", "job 4", "lapsed", "job 1"]
        live = [lease.name for lease in await backend.leases.list("job", CALL_LIMIT_S) if lease.is_live]
        assert live == ["job 0", "job 2", "job 3"]

    async def test_each_key_of_a_batch_gets_its_own_length(self, backend: Backend) -> None:
        lengths_s = [1.5, 30.0, 600.0, 0.25]
        keys = [await take(backend, f"job {s}", "ada", lease_s=s) for s in lengths_s]
        answers = await backend.leases.renew(keys, CALL_LIMIT_S)
        assert [granted(answer).remaining_s for answer in answers] == lengths_s

    async def test_a_key_given_twice_is_answered_twice(self, backend: Backend) -> None:
        a, b = await take(backend, "a", "ada"), await take(backend, "b", "ada")
        assert [says(answer) for answer in await backend.leases.renew([a, b, a], CALL_LIMIT_S)] == ["a", "b", "a"]
        answers = [says(answer) for answer in await backend.leases.release([a, b, a], CALL_LIMIT_S)]
        # A store may do all at once, or one after the other: then `a` has lapsed by its second release.
        assert answers in (["a", "b", "a"], ["a", "b", "lapsed"])
        assert not (await row(backend, "a")).is_live

    async def test_an_empty_batch_has_an_empty_answer(self, backend: Backend) -> None:
        assert await backend.leases.renew([], CALL_LIMIT_S) == []
        assert await backend.leases.release([], CALL_LIMIT_S) == []
        assert await backend.leases.read([], CALL_LIMIT_S) == {}
        assert await backend.leases.list("", CALL_LIMIT_S) == []

    async def test_read_gives_what_is_there_and_leaves_out_what_is_not(
        self, harness: Harness, backend: Backend
    ) -> None:
        for name in ("a", "b"):
            await take(backend, name, "ada")
        found = await backend.leases.read(["b", "never", "a", "b"], CALL_LIMIT_S)
        assert {name: lease.name for name, lease in found.items()} == {"a": "a", "b": "b"}
        await harness.set_clock(START + 2 * LEASE)
        assert (await row(backend, "a")).remaining_s == -LEASE_S

    async def test_list_gives_all_names_with_the_prefix_in_order_lapsed_ones_too(self, backend: Backend) -> None:
        for name in ("job/2", "job/10", "Job/3", "jo%", "job_1", "other"):
            await release(backend, await take(backend, name, "ada"))
        assert [lease.name for lease in await backend.leases.list("job/", CALL_LIMIT_S)] == ["job/10", "job/2"]
        assert [lease.name for lease in await backend.leases.list("jo%", CALL_LIMIT_S)] == ["jo%"]
        assert [lease.name for lease in await backend.leases.list("job_", CALL_LIMIT_S)] == ["job_1"]
        everything = [lease.name for lease in await backend.leases.list("", CALL_LIMIT_S)]
        assert everything == ["Job/3", "jo%", "job/10", "job/2", "job_1", "other"]


def says(answer: Lease | Refusal | object) -> str:
    match answer:
        case Lease():
            return answer.name
        case Refusal():
            return answer.reason
        case _:
            return repr(answer)
