"""Faults planted on purpose: each breaks one part of the product, and the simulation must find every one of them.

They exist to show that a clean run means something. Each is put in for one run and taken out again; the product's own
code has no switch for any of them.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from fencehold.backends.memory.backend import Shelf
from fencehold.model.election import places
from fencehold.model.election.leases import Lease, Refusal, Request, Rule, Verb
from fencehold.model.election.places import Place
from fencehold.model.errors import Uncertain
from fencehold.ports.leases import Answer
from fencehold.runtime.core.renewals import Kept, Renewals
from fencehold.runtime.core.trust import Trust
from fencehold.runtime.election.held_lease import HeldLease
from fencehold.runtime.election.keeper import Keeper
from fencehold.runtime.election.lease_mechanism import LeaseMechanism
from fencehold.runtime.election.term_bodies import TermBodies
from fencehold.runtime.election.watch import News

Patch = tuple[Any, str, Any]  # of a class or a module


def _until_from_answer(trust: Trust, sent_s: float, trusted_s: float) -> float:
    return trust._clock.now_s() + trusted_s


def _remaining_without_deadline(held: HeldLease) -> float:
    return 0.0 if held.ended_because else held.settings.lease_s


def _remaining_though_ended(held: HeldLease) -> float:
    return max(0.0, held.deadline_s - held._clock.now_s())


def _extend_always(trust: Trust, sent_s: float, trusted_s: float) -> bool:
    trust.deadline_s = max(trust.deadline_s, sent_s + trusted_s)
    return True


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


def _always_attended(renewals: Renewals[Any], kept: Kept) -> bool:
    return True


def _next_without_jump(epoch: int | None, last: Place, now: Place) -> int:
    return 1 if epoch is None else epoch + 1


def _next_with_one_jump(epoch: int | None, last: Place, now: Place) -> int:
    """Jump once, however many timelines lie between."""
    lift = places.EPOCH_JUMP * min(1, places.decide(last, now).jumps(last, now))
    return 1 + lift if epoch is None else epoch + (lift or 1)


def _next_born_at_1(epoch: int | None, last: Place, now: Place) -> int:
    return 1 if epoch is None else _NEXT_EPOCH(epoch, last, now)


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

PATCHES: dict[str, tuple[Patch, ...]] = {
    "deadline_from_answer": ((Trust, "_until", _until_from_answer),),
    "no_local_deadline": ((HeldLease, "remaining_s", property(_remaining_without_deadline)),),
    "no_fence": (),
    "fence_by_holder": (),
    "late_success_accepted": ((Trust, "extend", _extend_always),),
    "valid_again": (
        (HeldLease, "remaining_s", property(_remaining_though_ended)),
        (Trust, "extend", _extend_always),
    ),
    "refusal_as_unknown": ((Keeper, "_take_answer", _refusal_as_unknown),),
    "nonce_ignored": ((LeaseMechanism, "attempt", _attempt_with_new_nonce),),
    "stall_ignored": ((Renewals, "_is_attended", _always_attended),),
    "released_under_body": ((TermBodies, "left", _bodies_not_awaited),),
    "hint_is_truth": (
        (LeaseMechanism, "attempt", _attempt_believing_hints),
        (LeaseMechanism, "_hear", _hear_and_believe),
    ),
    "no_jump": ((places, "next_epoch", _next_without_jump),),
    "jump_once": ((places, "next_epoch", _next_with_one_jump),),
    "born_at_1": ((places, "next_epoch", _next_born_at_1),),
    "renewal_records": ((Shelf, "apply", _apply_recording_renewals),),
}

#: How the store checks writes under a fault of the fence itself.
FENCES = {"no_fence": "none", "fence_by_holder": "holder"}


@contextmanager
def planted(fault: str | None) -> Iterator[str]:
    """Plant the fault in the product's classes until the block ends; yield how the store must check writes."""
    patches = PATCHES[fault] if fault else ()
    before = [(owner, name, owner.__dict__[name]) for owner, name, _ in patches]
    try:
        for owner, name, broken in patches:
            setattr(owner, name, broken)
        yield FENCES.get(fault or "", "epoch")
    finally:
        for owner, name, sound in before:
            setattr(owner, name, sound)
