"""One instance's ASGI application: routes requests, and answers failures as {error:{code, message, details?}}."""

from __future__ import annotations

import time
from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from fencehold import FactSink, FenceholdError
from fencehold.service import redact
from submission_manager.http import openapi, probes, refusals, wire
from submission_manager.http.admission import Admission
from submission_manager.http.intents import IntentRoute, SubmitRoute
from submission_manager.http.parts import Parts
from submission_manager.http.refusals import Headers, Page, PageRoute, Refused, send_refusal
from submission_manager.http.requests import ClientGone
from submission_manager.http.waiting import Waiters
from submission_manager.rare_log import RareLog

INTENTS = "/v1/intents"
LOG_EVERY_S = 30.0
FRESH_S = 60.0  # an older failure does not show what the next client will get
OK = "ok"
PAGE_HEADERS: Headers = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}


class App:
    """One instance's ASGI application.

    After `drain()` it reports not-ready, and waiting clients are answered at once.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        limit_s = parts.settings.database_timeout_s
        self._trouble = RequestTrouble(parts.facts)
        self.waiters = Waiters(parts.intake, limit_s)
        self.readiness = probes.Readiness(parts.intake, parts.facts, parts.answers)
        self.admission = Admission(parts.intake, parts.registry.backlogs_max, parts.facts)
        document = openapi.document()
        openapi_json = 200, wire.encode(document), b"application/json"
        docs = 200, openapi.page(document), b"text/html; charset=utf-8"
        self._router = Router(
            [
                _route("/v1/intents", SubmitRoute(parts, self.admission, self.waiters), "POST"),
                _route("/v1/intents/{rest:path}", IntentRoute(parts.intake, limit_s)),
                _route("/healthz", PageRoute(probes.health)),
                _route("/readyz", PageRoute(self._ready)),
                _route("/leaderz", PageRoute(lambda: probes.leads(parts.leader))),
                _route("/metrics", PageRoute(self._metrics)),
                _route("/openapi.json", PageRoute(lambda: openapi_json)),
                _route("/docs", PageRoute(lambda: docs, PAGE_HEADERS)),
            ],
            redirect_slashes=False,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self  # makes the router raise HTTPException, where it would otherwise answer itself
        try:
            await self._router(scope, receive, send)
        except ClientGone:
            return
        except Exception as error:  # noqa: BLE001 - the client gets an answer, and the log gets the reason
            refused = self._refusal(scope, error)
            self._count(scope, refused.status, refused.fault.code)
            await send_refusal(refused, receive, send)
        else:
            self._count(scope, 200, OK)

    def cannot_lead(self) -> str | None:
        """Return the error that keeps this instance from leading, as text; None if there is none."""
        return self._parts.keeps_from_leading() or self.readiness.lacks()

    def conditions(self) -> Mapping[str, str | None]:
        """Return the problems that /readyz names although the instance stays ready; None: no problem of that kind."""
        fails = self._trouble.why_submissions_fail() or self.readiness.lacks(probes.TO_SUBMIT)
        return {"cannot_lead": self.cannot_lead(), "posts_fail": fails}

    def _ready(self) -> Page:
        return probes.ready(self.readiness, self._parts.leader, self.conditions())

    def _metrics(self) -> Page:
        text, content_type = self._parts.metrics.exposition()
        return 200, text, content_type.encode()

    def _refusal(self, scope: Scope, error: Exception) -> Refused:
        match error:
            case Refused():
                return error
            case HTTPException():
                return refusals.of_routing(error)
            case FenceholdError():
                is_submission = scope["method"] == "POST"
                self._trouble.failed(_shape(scope), error, is_submission=is_submission)
                return refusals.of_store(error, is_read=not is_submission)
        self._parts.facts.fact(
            "internal_error", path=_shape(scope), error=f"{type(error).__name__}: {redact(str(error))}"
        )
        return refusals.INTERNAL

    def _count(self, scope: Scope, status: int, reason: str) -> None:
        if _shape(scope) != INTENTS:
            return
        self._parts.metrics.request(status, reason)
        if scope["method"] == "POST" and status == 200:
            self._trouble.stored()

    async def drain(self) -> None:
        self.readiness.is_draining = True
        await self.waiters.close()

    def close(self) -> None:
        """Write the last log lines; call it when no more requests come."""
        self._trouble.close()


def _route(path: str, endpoint: ASGIApp, method: str = "GET") -> Route:
    return Route(path, endpoint, methods=[method])


def _shape(scope: Scope) -> str:
    """Return the route of the request, without the intent ids of clients."""
    return INTENTS if str(scope["path"]).startswith(INTENTS) else str(scope["path"])[:60]


class RequestTrouble:
    """Logs requests that fail for one cause in few lines: the first at once, then a count every 30 s.

    When a database is down, every request fails.
    """

    def __init__(self, facts: FactSink) -> None:
        self._failed = RareLog(facts, "request_failed", LOG_EVERY_S)
        self._newest: tuple[float, str] | None = None  # the newest failed submission: (time, error)

    def failed(self, path: str, error: FenceholdError, *, is_submission: bool) -> None:
        words = f"[{error.code}] {redact(error.message)}"
        if is_submission:
            self._newest = time.monotonic(), words
        self._failed.add("", {"requests": 1}, path=path, sql_error=words)

    def stored(self) -> None:
        """Forget the newest failure, because the database has answered a submission."""
        self._newest = None

    def why_submissions_fail(self) -> str | None:
        """Return the error of the newest submission; None if it did not fail, or failed more than FRESH_S ago."""
        newest = self._newest
        return newest[1] if newest is not None and time.monotonic() - newest[0] < FRESH_S else None

    def close(self) -> None:
        self._failed.close()
