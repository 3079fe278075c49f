"""Shared by the oracles of leases, events and items, and by the pairs and random walks that compare stores with them.

An oracle computes from a rule table what a store must answer. A pair has clients of a store and an oracle. A random
walk is a sequence of random calls of a pair.
"""

from __future__ import annotations

import datetime as dt
import json
import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, ClassVar, Generic, ParamSpec, Protocol, TypeVar

from fencehold.model.election.rules import Lease, Refusal
from fencehold.ports.items import ItemAnswer, ItemRefusal, ItemRow
from fencehold.ports.leases import Answer
from fencehold.testing.conformance.suite import START
from fencehold.testing.harness import Harness

C = TypeVar("C")
T = TypeVar("T")
A = ParamSpec("A")
Move = Callable[[], Awaitable[object]]

REMAINING_S_OFF_MAX = 1e-6  # a difference of two instants, as a float
SEED = 20_310_517
SHOWN = 12
NEXT_MAX = 9
SECOND = dt.timedelta(seconds=1)


class Rule(Protocol):
    @property
    def id(self) -> str: ...


class RuleOracle:
    """Computes from a rule table what a store must answer; a subclass for leases, events and items each.

    `fired` has the rules that allowed a verb, `refused` the pairs of state and verb that no rule allowed. The set
    `applied` gets the fired rules too, with the name of their table: for the matrix of rules.
    """

    table: ClassVar[str]
    rows: dict[Any, Any]  # the rows that the store must have

    def __init__(self, applied: set[str]) -> None:
        self.rows = {}
        self.fired: set[str] = set()
        self.refused: set[str] = set()
        self.last_rule: dict[Hashable, str | None] = {}  # for the last verb on a row, by the row's key; None: refused
        self._applied = applied

    def decided(self, row: Hashable, rule: Rule | None, state: Enum, verb: Enum) -> None:
        """Record what the table decided on this row: `rule` allowed the verb; None: no rule did."""
        self.last_rule[row] = rule.id if rule else None
        if rule:
            self.fired.add(rule.id)
            self._applied.add(f"{self.table} {rule.id}")
        else:
            self.refused.add(f"{state.value}.{verb.value}")

    def check_last(self, row: Hashable, rule: str, allowed: bool) -> None:
        """Check that the last verb on this row was allowed by this rule, or, if `allowed` is false, refused."""
        assert self.last_rule.get(row) == (rule if allowed else None), "the table and this case do not agree"


class Case(Protocol):
    @property
    def rule(self) -> str: ...
    @property
    def allowed(self) -> bool: ...


def check_cases(cases: Collection[Case], rules: Collection[Rule]) -> None:
    """Check that the cases have each rule of the table once allowed and once refused."""
    for allowed in (True, False):
        assert {case.rule for case in cases if case.allowed is allowed} == {rule.id for rule in rules}


def check_all_fired(fired: Collection[str], rules: Collection[Rule]) -> None:
    assert {*fired} == {rule.id for rule in rules}, "a rule never fired"


def agree(got: Answer | ItemAnswer | None, expected: Answer | ItemAnswer | None, what: str) -> None:
    """Fail unless the store's answer and the oracle's are of the same kind and about the same row."""
    match got, expected:
        case ((Refusal() | ItemRefusal()), (Refusal() | ItemRefusal())):
            assert got.reason == expected.reason, f"{what}: refused as {got.reason}, the table says {expected.reason}"
            agree(got.current, expected.current, f"{what}, the row shown")
        case ItemRow(), ItemRow():
            assert json.loads(got.document_json) == json.loads(expected.document_json), f"{what}: another document"
            _agree_on_row(replace(got, document_json=expected.document_json), expected, what)
        case Lease(), Lease():
            _agree_on_row(got, expected, what)
        case _:
            assert got is expected is None, f"{what}:\n  the store says {got}\n  the table says {expected}"


def _agree_on_row(got: Lease | ItemRow, expected: Lease | ItemRow, what: str) -> None:
    off_s = abs(got.remaining_s - expected.remaining_s)
    assert off_s <= REMAINING_S_OFF_MAX, f"{what}: {got.remaining_s} s left, not {expected.remaining_s}"
    same = replace(got, remaining_s=expected.remaining_s) == expected
    assert same, f"{what}:\n  the store says {got}\n  the table says {expected}"


R = TypeVar("R", bound=RuleOracle)


class ClientsAndOracle(Generic[C, R]):
    """A pair: clients of one store whose clock stands still at `now`, and the oracle that knows the right answers."""

    def __init__(self, harness: Harness, clients: Sequence[C], oracle: type[R]) -> None:
        self.harness = harness
        self.clients = clients
        self.oracle = oracle(harness.applied)
        self.tick = harness.traits.tick
        self.now = START
        self._calls = 0

    async def set_clock(self, at: dt.datetime) -> None:
        self.now = at
        await self.harness.set_clock(at)

    @property
    def client(self) -> C:
        """Another client at each access, in turn: any client may continue what another client began."""
        self._calls += 1
        return self.clients[self._calls % len(self.clients)]


class RandomWalk(ABC):
    """Makes random calls of `pairs`, which compare each answer with the oracle's. A failure shows the last calls."""

    goes_back: ClassVar[float] = 0.0  # how often the clock may jump back

    def __init__(self, *pairs: ClientsAndOracle[Any, Any], rng: random.Random | None = None) -> None:
        self.random = rng or random.Random(SEED)
        self.trail: list[str] = []
        self._clocks = pairs

    @abstractmethod
    def moves(self) -> Mapping[Move, int]:
        """Return the moves (random calls) that may come next, each with its weight."""

    @abstractmethod
    def edges(self) -> Iterable[dt.datetime | None]:
        """Return the instants at which something lapses or becomes due; None is ignored."""

    async def walk(self, steps: int) -> None:
        for step in range(steps):
            moves = self.moves()
            try:
                await self.random.choices([*moves], weights=[*moves.values()])[0]()
            except AssertionError as failure:
                failure.add_note("\n  ".join([f"seed {SEED}, step {step}; the last calls:", *self.trail[-SHOWN:]]))
                raise

    async def move_clock(self) -> None:
        """Set the clock, mostly to an instant of `edges` or a tick beside it, where off-by-one errors show."""
        now, tick = self._clocks[0].now, self._clocks[0].tick
        near = [edge + n * tick for edge in self.edges() if edge is not None for n in (-1, 0, 1)]
        if self.random.random() >= self.goes_back:
            near = sorted(at for at in near if at > now)[:NEXT_MAX]
        at = now + self.random.choice((tick, SECOND, 2 * SECOND))
        if near and self.random.random() < 0.7:
            at = self.random.choice(near)
        self.note(f"clock to {at.isoformat()}")
        for pair in self._clocks:
            await pair.set_clock(at)

    def note(self, call: str) -> None:
        self.trail.append(call)

    async def call(self, verb: Callable[A, Awaitable[T]], *args: A.args, **options: A.kwargs) -> T:
        """Make this call and return its answer. If the walk fails later, the failure shows the call."""
        self.note(f"{verb.__name__}{args} {options or ''}")
        return await verb(*args, **options)
