"""One instance's ASGI application: routes in, one answer out, every failure as {error:{code, message, details?}}."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from starlette.exceptions import HTTPException
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from fencehold.model.errors import FenceholdError, redact
from fencehold.ports.facts import FactSink
from submission_manager.http import docs_page, openapi, probes, refusals, wire
from submission_manager.http.admission import Admission
from submission_manager.http.intents import Contracts, IntakeMetrics, IntentRoute, SubmitRoute
from submission_manager.http.refusals import Headers, Refused, send_answer, send_refusal
from submission_manager.http.requests import ClientGone
from submission_manager.http.waiting import Waiters
from submission_manager.ports import IntakePort
from submission_manager.settings import Settings

TELL_EVERY_S = 30.0
PAGE_HEADERS: Headers = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}


class AppMetrics(IntakeMetrics, Protocol):
    def exposition(self) -> tuple[bytes, str]: ...


@dataclass(frozen=True)
class Parts:
    """What the application serves from."""

    intake: IntakePort
    contracts: Contracts
    role: probes.Role
    metrics: AppMetrics
    facts: FactSink
    settings: Settings
    on_created: Callable[[], None] = lambda: None  # stored here just now: a leader need not wait for its refresh
    backlogs_max: Mapping[str, int] = field(default_factory=dict)  # by target: with so many pending no other is taken
    keeps_from_leading: Callable[[], str | None] = lambda: None  # what this instance may not do, or does not find


class App:
    """ASGI. `drain()`: not ready any more, and whoever waits is answered now."""

    def __init__(self, parts: Parts) -> None:
        settings = parts.settings
        self._facts = parts.facts
        self._told_s, self._untold = -TELL_EVERY_S, 0
        self.waiters = Waiters(parts.intake, settings.database_timeout_s)
        self.readiness = probes.Readiness(parts.intake, parts.facts)
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
                _route("/readyz", probes.ReadyRoute(self.readiness, parts.role, parts.keeps_from_leading)),
                _route("/leaderz", probes.LeaderRoute(parts.role)),
                _route("/metrics", probes.MetricsRoute(parts.metrics.exposition)),
                _route("/openapi.json", Fixed(wire.encode(document), b"application/json")),
                _route("/docs", Fixed(docs_page.page(document), b"text/html; charset=utf-8", PAGE_HEADERS)),
            ],
            redirect_slashes=False,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self  # then the router raises what it would otherwise answer in words of its own
        try:
            await self._router(scope, receive, send)
        except Refused as refused:
            await send_refusal(refused, receive, send)
        except HTTPException as error:
            await send_refusal(refusals.of_routing(error), receive, send)
        except ClientGone:
            return
        except FenceholdError as error:
            self._tell_trouble(scope, error)
            await send_refusal(refusals.of_store(error, is_read=scope["method"] != "POST"), receive, send)
        except Exception as error:  # noqa: BLE001 - whoever asked gets an answer, and the log the reason
            self._facts.fact(
                "internal_error", path=_shape(scope), error=f"{type(error).__name__}: {redact(str(error))}"
            )
            await send_refusal(refusals.INTERNAL, receive, send)

    def _tell_trouble(self, scope: Scope, error: FenceholdError) -> None:
        """At once, then every 30 s with how many: a database that is down fails every request."""
        self._untold += 1
        if time.monotonic() - self._told_s < TELL_EVERY_S:
            return
        sql_error = f"[{error.code}] {redact(error.message)}"
        self._facts.fact("request_failed", path=_shape(scope), requests=self._untold, sql_error=sql_error)
        self._told_s, self._untold = time.monotonic(), 0

    async def drain(self) -> None:
        self.readiness.is_draining = True
        await self.waiters.close()


class Fixed:
    """The same bytes for everyone."""

    def __init__(self, body: bytes, content_type: bytes, headers: Headers = refusals.NONE) -> None:
        self._body, self._content_type, self._headers = body, content_type, headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send_answer(send, 200, self._body, self._content_type, self._headers)


def _route(path: str, endpoint: Callable[..., Any], method: str = "GET") -> Route:
    return Route(path, endpoint, methods=[method])


def _shape(scope: Scope) -> str:
    """Which route, without the ids of clients."""
    return "/v1/intents" if str(scope["path"]).startswith("/v1/intents") else str(scope["path"])[:60]
