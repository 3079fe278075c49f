"""Faults of leases."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace

from fencehold.backends.memory.backend import Shelf
from fencehold.model.election import places
from fencehold.model.election.leases import Lease, Refusal, Request, Rule, Verb
from fencehold.model.election.places import Place
from fencehold.model.errors import Uncertain
from fencehold.ports.leases import Answer
from fencehold.runtime.election.held_lease import HeldLease
from fencehold.runtime.election.keeper import Keeper
from fencehold.runtime.election.lease_mechanism import LeaseMechanism
from fencehold.runtime.election.term_bodies import TermBodies
from fencehold.runtime.election.watch import News
from fencehold.testing.simulation.faults import OF_STALLS, OF_TRUST, Faults
from fencehold.testing.simulation.fences import FencedStore


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
    """Jump once, however many timelines lie between."""
    lift = places.EPOCH_JUMP * min(1, places.decide(last, now).jumps(last, now))
    return 1 + lift if epoch is None else epoch + (lift or 1)


def _apply_recording_renewals(shelf: Shelf, verb: Verb, request: Request) -> Rule | None:
    rule = _APPLY(shelf, verb, request)
    if rule is not None and verb is Verb.RENEW:
        shelf.rows[request.name] = replace(shelf.rows[request.name], place=shelf.place)
    return rule


_APPLY = Shelf.apply
_NEXT_EPOCH = places.next_epoch
_TAKE_ANSWER: Callable[[Keeper, HeldLease, Answer, float], None] = Keeper._take_answer
_ATTEMPT = LeaseMechanism.attempt
_HEAR = LeaseMechanism._hear

FAULTS: Faults = {
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
