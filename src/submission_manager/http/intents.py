"""/v1/intents: store an intent, read it, read its history. The hot path, so it has no extra layers."""

from __future__ import annotations

import time

from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from fencehold import FenceholdError
from submission_manager.http import refusals, requests, wire
from submission_manager.http.admission import Admission
from submission_manager.http.parts import Parts
from submission_manager.http.refusals import send_answer
from submission_manager.http.waiting import Waiters
from submission_manager.model.intents import INTENT_ID_CHARS_MAX, Intent, NewIntent, Status
from submission_manager.ports import IntakePort, Submission, Submitted


class SubmitRoute:
    """The route POST /v1/intents: stores an intent, and answers only when it is stored for sure."""

    def __init__(self, parts: Parts, admission: Admission, waiters: Waiters) -> None:
        self._parts, self._admission, self._waiters = parts, admission, waiters
        self._intake, self._metrics = parts.intake, parts.metrics
        self._limit_s = parts.settings.database_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began_s = time.monotonic()
        wait_s = requests.wait_seconds(scope["query_string"])
        limits = self._parts.settings
        body = await requests.read_body(scope, receive, limits.body_limit_bytes, limits.request_timeout_s)
        intent = await self._stored(*requests.submission(body))
        if wait_s and intent.status is Status.PENDING and intent.attempt_count == 0:
            intent = await self._waited(intent, wait_s - (time.monotonic() - began_s))
        await send_answer(send, 200, wire.encode(wire.intent(intent)))

    async def _stored(self, intent_id: str, target: str, payload: bytes | None) -> Intent:
        contract = self._parts.registry.contracts.get(target)
        if contract is not None:
            new = NewIntent(intent_id, payload, contract)
            await self._admit(new)
            with self._admission.place(target):
                return self._told(await self._intake.submit(new, self._limit_s), new)
        # The target may have been removed from the registry since; a repeated submission is still answered.
        known = await self._intake.repeated(intent_id, target, payload, self._limit_s)
        if known is None:
            raise refusals.invalid("There is no such submissionTarget.", submissionTarget=target)
        self._metrics.hits.inc()
        return known

    async def _admit(self, new: NewIntent) -> None:
        """Raise Refused if the intent is new and too many intents of its target are pending.

        An intent that is stored already is always answered.
        """
        target = new.contract.submission_target
        most = self._admission.most(target)
        if most is not None and await self._intake.read(new.intent_id, self._limit_s) is None:
            self._admission.refused(target)
            self._metrics.refused.inc()
            raise refusals.backlog_full(target, most)

    def _told(self, submitted: Submitted, new: NewIntent) -> Intent:
        match submitted.kind:
            case Submission.CREATED:
                self._metrics.created.inc()
                self._admission.stored(new.contract.submission_target)
                self._parts.on_created()
            case Submission.KNOWN:
                self._metrics.hits.inc()
            case Submission.CONFLICT:
                self._metrics.conflicts.inc()
                existing = submitted.intent.submission_target
                raise refusals.conflict(new.intent_id, existing, new.contract.submission_target)
        return submitted.intent

    async def _waited(self, intent: Intent, wait_s: float) -> Intent:
        """Wait for the first attempt or the end of the intent, and return the intent as it is then.

        If it cannot be read at that moment, return it as it was stored: the client may always ask again.
        """
        if wait_s <= 0:
            return intent
        await self._waiters.moved(intent.intent_id, wait_s)
        try:
            return await self._intake.read(intent.intent_id, self._limit_s) or intent
        except FenceholdError:
            return intent


class IntentRoute:
    """GET /v1/intents/{id} and /v1/intents/{id}/history. If the database fails, the answer is 503, never 404."""

    def __init__(self, intake: IntakePort, limit_s: float) -> None:
        self._intake = intake
        self._limit_s = limit_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        intent_id, rest = requests.intent_path(scope)
        if rest not in ([], ["history"]) or not intent_id:
            raise HTTPException(404)
        if not requests.may_exist(intent_id):
            raise refusals.not_found(intent_id[:INTENT_ID_CHARS_MAX])
        body = await (self._history(intent_id) if rest else self._intent(intent_id))
        await send_answer(send, 200, body)

    async def _intent(self, intent_id: str) -> bytes:
        intent = await self._intake.read(intent_id, self._limit_s)
        if intent is None:
            raise refusals.not_found(intent_id)
        return wire.encode(wire.intent(intent))

    async def _history(self, intent_id: str) -> bytes:
        found = await self._intake.history(intent_id, self._limit_s)
        if found is None:
            raise refusals.not_found(intent_id)
        intent, attempts = found
        return wire.encode(wire.History(wire.intent(intent), [wire.attempt(one) for one in attempts]))
