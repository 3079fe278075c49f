"""Errors that are planted on purpose: each breaks one part of the product, and the simulation must find each of them.

They exist to show that a clean run means something. Each error is put in for one run and taken out again; the product's
own code has no switch for any of them.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from fencehold.backends.memory.backend import Shelf
from fencehold.backends.memory.items import ItemShelf
from fencehold.backends.memory.outbox import events as memory
from fencehold.model.election import places
from fencehold.model.election import rules as leases
from fencehold.model.election.election import LockState
from fencehold.model.election.places import Place
from fencehold.model.election.rules import Lease, Refusal
from fencehold.model.errors import LeaseLost, Uncertain
from fencehold.model.items import rules as items
from fencehold.model.items.rules import always, is_holder, write
from fencehold.model.outbox import rules as events
from fencehold.model.outbox.rules import has_lapsed, recover, tries_left
from fencehold.model.outbox.settings import OutboxSettings
from fencehold.ports.events import ClaimAsk
from fencehold.ports.leases import Answer
from fencehold.ports.lock_session import Companion
from fencehold.runtime.core.renewals import Heartbeats, Kept, Renewals
from fencehold.runtime.core.trust import Trust
from fencehold.runtime.election.keeper import HeldLease, Keeper
from fencehold.runtime.election.lease_mechanism import LeaseMechanism
from fencehold.runtime.election.term import TermBodies
from fencehold.runtime.election.watch import News
from fencehold.runtime.items.context import ItemsContext
from fencehold.runtime.items.item import Item
from fencehold.runtime.items.keeper import GONE, LEFT, ItemRenewals
from fencehold.runtime.lock.mechanism import Grant, SessionMechanism, Timing
from fencehold.runtime.lock.session_lock import SessionLock
from fencehold.runtime.outbox.handler_runs import HandlerRuns
from fencehold.runtime.outbox.reaper import Reaper
from fencehold.runtime.outbox.worker import Worker
from fencehold.runtime.outbox.worker_background import EventRenewals
from fencehold.testing.simulation.fences import FencedStore

Patch = tuple[Any, str, Any]  # a class or a module, the name in it, and the new value
Faults = Mapping[str, tuple[Patch, ...]]

STILL_S = 5.0


def answering(answer: Any) -> Callable[..., Any]:
    """Return a function that ignores its arguments and returns `answer`."""
    return lambda *asked: answer


def _extend_always(trust: Trust, sent_s: float, trusted_s: float) -> bool:
    trust.deadline_s = max(trust.deadline_s, sent_s + trusted_s)
    return True


def _refusals_unanswered(beats: Heartbeats[Any], due: Sequence[Kept], answers: Sequence[Any], sent_s: float) -> None:
    given = [(kept, answer) for kept, answer in zip(due, answers, strict=True) if answer is not None]
    _ANSWERED(beats, [kept for kept, _ in given], [answer for _, answer in given], sent_s)
    for kept in due:
        if kept not in [one for one, _ in given]:
            beats._put_off(kept)


_ANSWERED = Heartbeats._answered

OF_TRUST: Faults = {
    "deadline_from_answer": ((Trust, "_until", lambda trust, sent_s, trusted_s: trust._clock.now_s() + trusted_s),),
    "no_local_deadline": ((Trust, "remaining_s", property(lambda trust: 0.0 if trust.ended_because else STILL_S)),),
    "late_success_accepted": ((Trust, "extend", _extend_always),),
    "valid_again": (
        (Trust, "remaining_s", property(lambda trust: max(0.0, trust.deadline_s - trust._clock.now_s()))),
        (Trust, "extend", _extend_always),
    ),
}
OF_HEARTBEATS: Faults = {"refusal_as_unknown": ((Heartbeats, "_answered", _refusals_unanswered),)}
OF_STALLS: Faults = {"stall_ignored": ((Renewals, "_is_attended", answering(True)),)}


# Of leases


def _refusal_as_unknown(keeper: Keeper, held: HeldLease, answer: Answer, sent_s: float) -> None:
    if isinstance(answer, Refusal):
        keeper._unanswered([held], Uncertain("perhaps"))
    else:
        _TAKE_ANSWER(keeper, held, answer, sent_s)


async def _attempt_with_new_nonce(mechanism: LeaseMechanism) -> HeldLease | None:
    mechanism._nonce = secrets.token_hex(16)
    return await _ATTEMPT(mechanism)


async def _attempt_believing_hints(mechanism: LeaseMechanism) -> HeldLease | None:
    seen = mechanism._answer.current if mechanism._answer is not None else None
    if seen is None or not getattr(mechanism, "hinted", False):
        return await _ATTEMPT(mechanism)
    mechanism.hinted = False  # type: ignore[attr-defined]
    mechanism._answer = None
    settings, clock = mechanism._settings, mechanism._clock
    lease = replace(seen, holder_id=mechanism._holder_id, epoch=seen.epoch + 1, remaining_s=settings.lease_s)
    mechanism._held = HeldLease(lease, settings, clock.now_s(), clock, mechanism._facts.sink)
    return mechanism._held


def _hear_and_believe(mechanism: LeaseMechanism, news: News, lease: Lease | None) -> None:
    if news is News.FREED:
        mechanism.hinted = True  # type: ignore[attr-defined]
    _HEAR(mechanism, news, lease)


async def _bodies_not_awaited(bodies: TermBodies, limit_s: float) -> bool:
    return True


def _next_with_one_jump(epoch: int | None, last: Place, now: Place) -> int:
    """Return the next epoch, wrongly: it jumps once at most, however many promotions of standbys lie between."""
    lift = places.EPOCH_JUMP * min(1, places.decide(last, now).jumps(last, now))
    return 1 + lift if epoch is None else epoch + (lift or 1)


def _apply_recording_renewals(shelf: Shelf, verb: leases.Verb, request: leases.Request) -> leases.Rule | None:
    rule = _APPLY(shelf, verb, request)
    if rule is not None and verb is leases.Verb.RENEW:
        shelf.rows[request.name] = replace(shelf.rows[request.name], place=shelf.place)
    return rule


_APPLY = Shelf.apply
_NEXT_EPOCH = places.next_epoch
_TAKE_ANSWER: Callable[[Keeper, HeldLease, Answer, float], None] = Keeper._take_answer
_ATTEMPT = LeaseMechanism.attempt
_HEAR = LeaseMechanism._hear

OF_LEASES: Faults = {
    **OF_TRUST,
    **OF_STALLS,
    "no_fence": ((FencedStore, "fence", "none"),),
    "fence_by_holder": ((FencedStore, "fence", "holder"),),
    "refusal_as_unknown": ((Keeper, "_take_answer", _refusal_as_unknown),),
    "nonce_ignored": ((LeaseMechanism, "attempt", _attempt_with_new_nonce),),
    "released_under_body": ((TermBodies, "left", _bodies_not_awaited),),
    "hint_is_truth": (
        (LeaseMechanism, "attempt", _attempt_believing_hints),
        (LeaseMechanism, "_hear", _hear_and_believe),
    ),
    "no_jump": ((places, "next_epoch", lambda epoch, last, now: 1 if epoch is None else epoch + 1),),
    "jump_once": ((places, "next_epoch", _next_with_one_jump),),
    "born_at_1": (
        (places, "next_epoch", lambda epoch, last, now: 1 if epoch is None else _NEXT_EPOCH(epoch, last, now)),
    ),
    "renewal_records": ((Shelf, "apply", _apply_recording_renewals),),
}


# Of locks


async def _prove_whenever(mechanism: SessionMechanism[Any], grant: Grant) -> None:
    session = mechanism._session
    assert session is not None, "a leader has its session"
    sent_s = await mechanism._probe(session)
    if mechanism._companion is not None and grant.epoch is not None:
        timing = mechanism._timing
        await mechanism._companion.renew(session, grant.epoch, timing.trust_s, timing.probe_limit_s)
    grant.prove(sent_s)


async def _probe_for_life(mechanism: SessionMechanism[Any], session: Any) -> float:
    sent_s = mechanism._clock.now_s()
    await session.probe(mechanism._timing.probe_limit_s)
    return sent_s


def _leads_while_reconnecting(lock: SessionLock[Any]) -> bool:
    grant = lock._election.grant if lock._election is not None else None
    return lock.state is LockState.RECONNECTING or (
        lock.state is LockState.LEADER and grant is not None and grant.is_valid
    )


async def _fenced_unasked(
    mechanism: SessionMechanism[Any], session: Any, companion: Companion[Any], new: Grant
) -> Grant:
    old = mechanism._interrupted
    if old is None or old.epoch is None:
        return await _FENCED(mechanism, session, companion, new)
    old.begin(await mechanism._probe(session))
    return old


async def _close_nothing(mechanism: SessionMechanism[Any]) -> None:
    grant, mechanism._session, mechanism._grant = mechanism._grant, None, None
    if grant is not None:
        grant.end()


_FENCED = SessionMechanism._fenced

OF_LOCKS: Faults = {
    **OF_TRUST,
    "late_success_accepted": (*OF_TRUST["late_success_accepted"], (SessionMechanism, "_prove", _prove_whenever)),
    "refusal_as_unknown": ((SessionMechanism, "_probe", _probe_for_life),),
    "grace_keeps_leader": ((SessionLock, "is_leader", property(_leads_while_reconnecting)),),
    "resumed_unasked": ((SessionMechanism, "_fenced", _fenced_unasked),),
    "new_term_hidden": ((SessionMechanism, "is_new_term", answering(False)),),
    "connection_kept": ((SessionMechanism, "close", _close_nothing),),
    "end_forgotten": ((Grant, "end", answering(None)),),
    "no_margin": ((Timing, "margin_s", 0.0),),
}


# Of outbox


RESULTS = frozenset({events.Verb.RENEW, events.Verb.COMPLETE, events.Verb.FAIL, events.Verb.RELEASE})


def _rules(of: frozenset[events.Verb], instead: Callable[[events.Stored, events.Request], bool]) -> tuple[Patch, ...]:
    """Return patches of the outbox's rule table: the rules of the verbs in `of` get the condition `instead`.

    The rules of FAIL and REAP still check, besides, whether tries are left.
    """

    def changed(rule: events.Rule) -> events.Rule:
        if rule.on not in of:
            return rule
        if rule.on not in {events.Verb.FAIL, events.Verb.REAP}:
            return replace(rule, when=instead)
        may_retry = rule.target is not events.Status.DEAD_LETTER
        return replace(rule, when=lambda row, request: instead(row, request) and tries_left(row, request) is may_retry)

    return ((events, "RULES", tuple(changed(rule) for rule in events.RULES)),)


def _recover_uncounted(row: events.Stored, request: events.Request) -> events.Stored:
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

OF_OUTBOX: Faults = {
    **OF_TRUST,
    **OF_HEARTBEATS,
    "token_ignored": _rules(RESULTS, lambda row, request: not has_lapsed(row, request)),
    "result_after_expiry": _rules(RESULTS - {events.Verb.RENEW}, lambda row, request: row.lock_token == request.token),
    "reaper_takes_live": (
        *_rules(frozenset({events.Verb.REAP}), answering(True)),
        (memory, "_lapsed", lambda shelf, now: (row for row in shelf.unfinished.values() if row.stored.lock_token)),
    ),
    "recovery_not_counted": (
        (events, "RULES", tuple(replace(r, then=_recover_uncounted) if r.then is recover else r for r in events.RULES)),
    ),
    "token_per_worker": ((Worker, "_ask", _ask_with_one_token),),
    "suspects_together": ((Worker, "_ask", _ask_for_suspects),),
    "processing_without_limit": ((EventRenewals, "_max_s", answering(math.inf)),),
    "lost_handler_runs_on": ((HandlerRuns, "lose", answering(None)),),
    "nothing_reaped": ((Reaper, "_run_once", _run_nothing),),
}


# Of items


def _unchecked(verb: items.Verb) -> tuple[Patch, ...]:
    """Return patches of the items' rule table: anybody may call `verb` on an item that somebody else holds."""
    changed = (replace(r, when=always) if (r.source, r.on) == (items.Row.LIVE, verb) else r for r in items.RULES)
    return ((items, "RULES", tuple(changed)),)


async def _break_later(item: Item[Any]) -> asyncio.CancelledError | None:
    if item._lease.ended_because not in GONE:
        item._lease.end(LEFT)
        item._context.start_breaking([item._lease])
    return None


async def _leave_quietly(item: Item[Any], *how: Any) -> None:
    with suppress(LeaseLost):
        await _LEAVE(item, *how)


@contextmanager
def _asking_freely(context: ItemsContext, kind: str, holder_id: str, item_id: str) -> Iterator[None]:
    yield


_LEAVE = Item.__aexit__

OF_ITEMS: Faults = {
    **OF_TRUST,
    **OF_HEARTBEATS,
    **OF_STALLS,
    "save_unchecked": _unchecked(items.Verb.SAVE),
    "save_after_expiry": (
        (items, "RULES", (*items.RULES, items.Rule(items.Row.FREE, items.Verb.SAVE, is_holder, items.Row.FREE, write))),
    ),
    "taken_while_held": _unchecked(items.Verb.ACQUIRE),
    "token_repeats": ((ItemShelf, "next_token", answering(7)),),
    "break_not_awaited": ((Item, "_give_back", _break_later),),
    "lost_body_runs_on": ((Item, "_ended", answering(None)),),
    "loss_not_raised": ((Item, "__aexit__", _leave_quietly),),
    "taken_from_own_body": ((ItemsContext, "asking", _asking_freely),),
    "processing_without_limit": ((ItemRenewals, "_max_s", answering(math.inf)),),
}


@contextmanager
def planted(patches: Sequence[Patch]) -> Iterator[None]:
    """Put the patches, which break the product on purpose, into its classes and modules, until the block ends."""
    before = [(owner, name, owner.__dict__[name]) for owner, name, _ in patches]
    try:
        for owner, name, broken in patches:
            setattr(owner, name, broken)
        yield
    finally:
        for owner, name, sound in before:
            setattr(owner, name, sound)
