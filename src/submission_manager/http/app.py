"""One instance's ASGI application: routes requests, and answers failures as {error:{code, message, details?}}."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from starlette.exceptions import HTTPException
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from fencehold import FactSink, FenceholdError
from fencehold.service import redact
from submission_manager.answers import Answers
from submission_manager.http import docs_page, openapi, probes, refusals, wire
from submission_manager.http.admission import Admission
from submission_manager.http.intents import Contracts, IntakeMetrics, IntentRoute, SubmitRoute
from submission_manager.http.refusals import Headers, Refused, send_answer, send_refusal
from submission_manager.http.requests import ClientGone
from submission_manager.http.trouble import RequestTrouble
from submission_manager.http.waiting import Waiters
from submission_manager.ports import IntakePort
from submission_manager.settings import Settings

INTENTS = "/v1/intents"
OK = "ok"
PAGE_HEADERS: Headers = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}


class AppMetrics(IntakeMetrics, Protocol):
    def request(self, status: int, reason: str) -> None:
        """Count one request of a client, not of a probe, with its answer."""
        ...

    def exposition(self) -> tuple[bytes, str]: ...


@dataclass(frozen=True)
class Parts:
    """The parts that the application is built from."""

    intake: IntakePort
    contracts: Contracts
    role: probes.Role
    metrics: AppMetrics
    facts: FactSink
    settings: Settings
    on_created: Callable[[], None] = lambda: None  # an intent was stored: a leader here refreshes at once
    backlogs_max: Mapping[str, int] = field(default_factory=dict)  # by target; at it, new ones are refused
    keeps_from_leading: Callable[[], str | None] = lambda: None  # the error that keeps it from leading
    answers: Answers = field(default_factory=Answers)  # the database's answers to this process


class App:
    """The ASGI application. After `drain()` it reports not-ready, and waiting clients are answered at once."""

    def __init__(self, parts: Parts) -> None:
        settings = parts.settings
        self._facts, self._metrics = parts.facts, parts.metrics
        self._trouble = RequestTrouble(parts.facts)
        self.waiters = Waiters(parts.intake, settings.database_timeout_s)
        self.readiness = probes.Readiness(parts.intake, parts.facts, parts.answers)
        self._keeps_from_leading = parts.keeps_from_leading
        self.admission = Admission(parts.intake, parts.backlogs_max, parts.facts)
        submit = SubmitRoute(
            parts.intake, parts.contracts, self.admission, self.waiters, settings, parts.metrics, parts.on_created
        )
        document = openapi.document()
        self._router = Router(
            [
                _route("/v1/intents", submit, "POST"),
                _route("/v1/intents/{rest:path}", IntentRoute(parts.intake, settings.database_timeout_s)),
                _route("/healthz", probes.HealthRoute()),
                _route("/readyz", probes.ReadyRoute(self.readiness, parts.role, self.conditions)),
                _route("/leaderz", probes.LeaderRoute(parts.role)),
                _route("/metrics", probes.MetricsRoute(parts.metrics.exposition)),
                _route("/openapi.json", Fixed(wire.encode(document), b"application/json")),
                _route("/docs", Fixed(docs_page.page(document), b"text/html; charset=utf-8", PAGE_HEADERS)),
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
        """The error that keeps this instance from leading, as text, or None."""
        return self._keeps_from_leading() or self.readiness.lacks()

    def conditions(self) -> Mapping[str, str | None]:
        """Problems that do not make it not-ready, for the line of /readyz; None: no problem of that kind."""
        fails = self._trouble.why_submissions_fail() or self.readiness.lacks(probes.TO_SUBMIT)
        return {"cannot_lead": self.cannot_lead(), "posts_fail": fails}

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
        self._facts.fact("internal_error", path=_shape(scope), error=f"{type(error).__name__}: {redact(str(error))}")
        return refusals.INTERNAL

    def _count(self, scope: Scope, status: int, reason: str) -> None:
        if _shape(scope) != INTENTS:
            return
        self._metrics.request(status, reason)
        if scope["method"] == "POST" and status == 200:
            self._trouble.stored()

    async def drain(self) -> None:
        self.readiness.is_draining = True
        await self.waiters.close()

    def close(self) -> None:
        """Write the last log lines; call it when no more requests come."""
        self._trouble.close()


class Fixed:
    """A route that answers every request with the same bytes."""

    def __init__(self, body: bytes, content_type: bytes, headers: Headers = refusals.NONE) -> None:
        self._body, self._content_type, self._headers = body, content_type, headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send_answer(send, 200, self._body, self._content_type, self._headers)


def _route(path: str, endpoint: Callable[..., Any], method: str = "GET") -> Route:
    return Route(path, endpoint, methods=[method])


def _shape(scope: Scope) -> str:
    """The route of the request, without the intent ids of clients."""
    return INTENTS if str(scope["path"]).startswith(INTENTS) else str(scope["path"])[:60]
