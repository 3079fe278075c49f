"""Faults of the outbox: of its workers, and of the rules by which a store answers them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fencehold.backends.memory.outbox import events as memory
from fencehold.model.outbox import events
from fencehold.model.outbox.events import RULES, Request, Rule, Status, Stored, Verb, has_lapsed, recover, tries_left
from fencehold.model.outbox.settings import OutboxSettings
from fencehold.ports.events import ClaimAsk
from fencehold.runtime.outbox.event_renewals import EventRenewals
from fencehold.runtime.outbox.handler_runs import HandlerRuns
from fencehold.runtime.outbox.reaper import Reaper
from fencehold.runtime.outbox.worker import Worker
from fencehold.testing.simulation.faults import OF_HEARTBEATS, OF_TRUST, Faults, Patch, answering

RESULTS = frozenset({Verb.RENEW, Verb.COMPLETE, Verb.FAIL, Verb.RELEASE})


def _rules(of: frozenset[Verb], instead: Callable[[Stored, Request], bool]) -> tuple[Patch, ...]:
    """The rule table with another condition for these verbs: they go on to ask whether tries are left."""

    def changed(rule: Rule) -> Rule:
        if rule.on not in of:
            return rule
        if rule.on not in {Verb.FAIL, Verb.REAP}:
            return replace(rule, when=instead)
        may_retry = rule.target is not Status.DEAD_LETTER
        return replace(rule, when=lambda row, request: instead(row, request) and tries_left(row, request) is may_retry)

    return ((events, "RULES", tuple(changed(rule) for rule in RULES)),)


def _recover_uncounted(row: Stored, request: Request) -> Stored:
    return replace(recover(row, request), retry_count=row.retry_count)


def _ask_with_one_token(worker: Worker, limit: int, settings: OutboxSettings) -> ClaimAsk | None:
    worker._tokens = 0
    return _ASK(worker, limit, settings)


def _ask_for_suspects(worker: Worker, limit: int, settings: OutboxSettings) -> ClaimAsk | None:
    ask = _ASK(worker, limit, settings)
    return ask and replace(ask, suspects_max=None)


async def _run_nothing(reaper: Reaper, port: Any) -> None:
    return None


_ASK = Worker._ask

FAULTS: Faults = {
    **OF_TRUST,
    **OF_HEARTBEATS,
    "token_ignored": _rules(RESULTS, lambda row, request: not has_lapsed(row, request)),
    "result_after_expiry": _rules(RESULTS - {Verb.RENEW}, lambda row, request: row.lock_token == request.token),
    "reaper_takes_live": (
        *_rules(frozenset({Verb.REAP}), answering(True)),
        (memory, "_lapsed", lambda shelf, now: (row for row in shelf.unfinished.values() if row.stored.lock_token)),
    ),
    "recovery_not_counted": (
        (events, "RULES", tuple(replace(r, then=_recover_uncounted) if r.then is recover else r for r in RULES)),
    ),
    "token_per_worker": ((Worker, "_ask", _ask_with_one_token),),
    "suspects_together": ((Worker, "_ask", _ask_for_suspects),),
    "processing_without_limit": ((EventRenewals, "_max_s", answering(math.inf)),),
    "lost_handler_runs_on": ((HandlerRuns, "lose", answering(None)),),
    "nothing_reaped": ((Reaper, "_run_once", _run_nothing),),
}
