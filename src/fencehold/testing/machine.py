"""A Hypothesis state machine over a real backend: it must obey the rule table for any calls in any order.

    def test_my_backend_obeys_the_table():
        check(MyHarness())

Every example has a lease of its own in one namespace, so nothing has to be emptied in between. Any token and any
request that was ever made may be used late. The clock is the harness's, and is often set exactly to a lease's end.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from fencehold.model.election.leases import Ask, Lease, TermKey, Verb
from fencehold.model.errors import LeaseLost
from fencehold.ports.backend import Backend
from fencehold.testing.conformance.leases.pair import LeasePair
from fencehold.testing.conformance.suite import START
from fencehold.testing.harness import Harness

LEASE_S = 10.0
RENEWED_S = 15.0  # unlike the first length, so that a wrong renewal shows in the row at once
EXAMPLES = 100
STEPS = 25
CLIENTS = 3
TERM_S = 60.0
WRITE = "write"

# Mostly what a real holder does: the newest token, and the same holder again.
AGE = st.sampled_from((0, 0, 1, 2))
TOKEN = st.sampled_from(("newest", "before", "newest", "stranger's", "long before", "of no epoch"))
HOLDER = st.sampled_from(("ada", "ada", "bob"))
VERB = st.sampled_from((*(verb.value for verb in Verb), WRITE))

T = TypeVar("T")


class World:
    """A harness that is open in an event loop of its own while a machine runs on it."""

    def __init__(self, harness: Harness, runner: asyncio.Runner) -> None:
        self.harness = harness
        self.names = (f"job {number}" for number in itertools.count())
        self._runner = runner
        self.clients: list[Backend] = []

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)


@contextmanager
def world(harness: Harness, prepare: Callable[[Backend], None]) -> Iterator[World]:
    """Open a World. `prepare` is called with every client before its first use: there a test can plant a fault."""
    with asyncio.Runner() as runner:
        made = World(harness, runner)
        try:
            runner.run(harness.open())
            made.clients = [runner.run(harness.client()) for _ in range(CLIENTS)]
            for client in made.clients:
                prepare(client)
            yield made
        finally:
            runner.run(harness.close())


class LeaseMachine(RuleBasedStateMachine):
    """One lease, two holders; each call comes from another client than the one before."""

    world: World

    def __init__(self) -> None:
        super().__init__()
        self.name = next(self.world.names)
        self.pair = LeasePair(self.world.harness, self.world.clients)
        self.asks: list[Ask] = []
        self.keys: list[TermKey] = []
        self.notes: list[int] = []
        self._set_clock(START)

    # Time

    @rule(forward_ms=st.integers(1, 8_000))
    def time_passes(self, forward_ms: int) -> None:
        self._set_clock(self.pair.now + dt.timedelta(milliseconds=forward_ms))

    def _set_clock(self, at: dt.datetime) -> None:
        self.world.run(self.pair.set_clock(at))

    # Verbs

    @rule(holder=HOLDER)
    def acquire(self, holder: str) -> None:
        self._acquire(Ask(self.name, holder, LEASE_S, f"nonce {len(self.asks)}"))

    @precondition(lambda self: self.asks)
    @rule(age=AGE)
    def a_request_comes_again(self, age: int) -> None:
        self._acquire(self.asks[-1 - age % len(self.asks)])

    # A rule for each verb, so that most steps use a token

    @precondition(lambda self: self.keys)
    @rule(token=TOKEN)
    def renew(self, token: str) -> None:
        self._use(Verb.RENEW.value, self._key(token))

    @precondition(lambda self: self.keys)
    @rule(token=TOKEN)
    def release(self, token: str) -> None:
        self._use(Verb.RELEASE.value, self._key(token))

    @precondition(lambda self: self.keys)
    @rule(token=TOKEN)
    def ask_step_down(self, token: str) -> None:
        self._use(Verb.ASK_STEP_DOWN.value, self._key(token))

    @precondition(lambda self: self.keys)
    @rule(token=TOKEN)
    def write(self, token: str) -> None:
        self._use(WRITE, self._key(token))

    @precondition(lambda self: self.keys)
    @rule(verb=VERB, ticks=st.sampled_from((-1, 0, 1)))
    def the_newest_token_is_used_at_its_expiry(self, verb: str, ticks: int) -> None:
        self._set_clock(self.pair.oracle.rows[self.name].expires_at + ticks * self.world.harness.traits.tick)
        if verb == Verb.ACQUIRE.value:
            self.acquire(self.keys[-1].holder_id)
        else:
            self._use(verb, self.keys[-1])

    # What they do

    def _key(self, token: str) -> TermKey:
        newest = self.keys[-1]
        match token:
            case "stranger's":
                return replace(newest, holder_id="mallory")
            case "of no epoch":
                return replace(newest, epoch=newest.epoch + 1)
            case "before":
                return self.keys[-2] if len(self.keys) > 1 else newest
            case "long before":
                return self.keys[0]
            case _:
                return newest

    def _acquire(self, ask: Ask) -> None:
        got = self.world.run(self.pair.acquire(ask))
        self.asks.append(ask)
        if isinstance(got, Lease):
            self.keys.append(got.key(RENEWED_S))

    def _use(self, verb: str, key: TermKey) -> None:
        if verb == WRITE:
            self._write(key)
        else:
            self.world.run(self.pair.use(Verb(verb), key))

    def _write(self, key: TermKey) -> None:
        accepted = self.world.run(self._fenced(self.pair.client, key))
        may_write = self.pair.oracle.may_write(key, self.pair.now)
        assert accepted is may_write, f"a write under {key} was accepted: {accepted}"
        if accepted:
            assert not self.notes or key.epoch >= self.notes[-1], "a write of an older epoch after one of a newer"
            self.notes.append(key.epoch)

    async def _fenced(self, client: Backend, key: TermKey) -> bool:
        try:
            async with client.fences.transaction(key, lambda: TERM_S) as tx:
                await self.world.harness.write(tx, key.epoch)
        except LeaseLost:
            return False
        return True

    @invariant()
    def the_row_is_the_table_s(self) -> None:
        self.world.run(self.pair.check(self.name))


def check(
    harness: Harness,
    *,
    examples: int = EXAMPLES,
    steps: int = STEPS,
    prepare: Callable[[Backend], None] = lambda backend: None,
    shrink: bool = True,
) -> None:
    """Fail, and show the shortest calls that fail, unless the backend obeys the table in every example."""
    phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)
    chosen = settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, database=None, derandomize=True,
        phases=phases, suppress_health_check=list(HealthCheck), print_blob=False,
    )  # fmt: skip
    with world(harness, prepare) as made:
        machine = type("LeaseMachineHere", (LeaseMachine,), {"world": made})
        run_state_machine_as_test(machine, settings=chosen)
