"""Faults of session locks."""

from __future__ import annotations

from typing import Any

from fencehold.model.election.election import LockState
from fencehold.ports.lock_session import Companion
from fencehold.runtime.lock.mechanism import Grant, SessionMechanism, Timing
from fencehold.runtime.lock.session_lock import SessionLock
from fencehold.testing.simulation.faults import OF_TRUST, Faults, answering


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

FAULTS: Faults = {
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
