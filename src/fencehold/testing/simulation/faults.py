"""Faults planted on purpose: each breaks one part of the product, and the simulation must find every one of them.

They exist to show that a clean run means something. Each is put in for one run and taken out again; the product's own
code has no switch for any of them. Here are those that break what leases of several kinds share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from fencehold.runtime.core.renewals import Heartbeats, Kept, Renewals
from fencehold.runtime.core.trust import Trust

Patch = tuple[Any, str, Any]  # of a class or a module
Faults = Mapping[str, tuple[Patch, ...]]

STILL_S = 5.0


def answering(answer: Any) -> Callable[..., Any]:
    """A function that does nothing but give this answer."""
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


@contextmanager
def planted(patches: Sequence[Patch]) -> Iterator[None]:
    """Plant a fault in the product's classes until the block ends."""
    before = [(owner, name, owner.__dict__[name]) for owner, name, _ in patches]
    try:
        for owner, name, broken in patches:
            setattr(owner, name, broken)
        yield
    finally:
        for owner, name, sound in before:
            setattr(owner, name, sound)
