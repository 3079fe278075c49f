"""Builds the OpenAPI document from the types of wire.py and the table of routes below."""

from __future__ import annotations

from typing import Any

import msgspec

import fencehold
from submission_manager.http import wire
from submission_manager.http.requests import WAIT_LONGEST_S, WAIT_SECONDS_MAX

_REF = "#/components/schemas/{name}"

INVALID = "400", "invalid_request: not JSON, a missing, unknown, repeated or odd field, an unknown target."
UNAVAILABLE = "503", "database_unavailable, database_uncertain or not_ready. Nothing is known; ask again."
INTERNAL = "500", "internal_error."
METHOD = "405", "method_not_allowed; the Allow header names those there are."
NOT_FOUND = "404", "not_found: the database says that there is no such intent."

BACKLOG = (
    "429",
    (
        "backlog_full: so many intents of this target are pending that no new one is taken (see maxBacklog). "
        "Nothing was stored; Retry-After says when to send it again. An intent that is stored is never refused so."
    ),
)

_ID = {
    "name": "intentId", "in": "path", "required": True, "schema": {"type": "string"},
    "description": "Percent-encoded where it needs to be, also a slash.",
}  # fmt: skip
_WAIT = {
    "name": "waitSeconds",
    "in": "query",
    "required": False,
    "schema": {"type": "integer", "minimum": 0},
    "description": "Answer at the first attempt or at the end of the intent, but after so many seconds at the latest; "
    f"above {WAIT_SECONDS_MAX} means {WAIT_SECONDS_MAX}, and no wait is longer than {WAIT_LONGEST_S:g} s, so that "
    "proxies do not give up first. Not part of the intent's identity.",
}


def document() -> dict[str, Any]:
    types = [wire.Submission, wire.Intent, wire.Attempt, wire.History, wire.Error]
    _, schemas = msgspec.json.schema_components(types, ref_template=_REF)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "SubmissionManager",
            "version": fencehold.__version__,
            "description": "Takes intents to submit an SMS or a push message, and submits each by the policy of its "
            "target: once, so many times, or until a deadline. Every instance takes intents; one of them executes.",
        },
        "paths": _paths(),
        "components": {"schemas": schemas},
    }


def _paths() -> dict[str, Any]:
    return {
        "/v1/intents": {"post": _submit()},
        "/v1/intents/{intentId}": {"get": _read("readIntent", "One intent", "Intent")},
        "/v1/intents/{intentId}/history": {"get": _read("readHistory", "An intent and its attempts", "History")},
        "/healthz": {"get": _probe("isAlive", "The process answers", "`ok`; never asks the database")},
        "/readyz": {"get": _probe("isReady", "Fit for traffic", "Leader or follower", "Draining, or no tables")},
        "/leaderz": {"get": _probe("isLeader", "Whether this instance leads", "It leads", "It follows")},
        "/metrics": {"get": _probe("metrics", "Prometheus metrics", "Text exposition")},
    }


def _submit() -> dict[str, Any]:
    return {
        "operationId": "submitIntent",
        "summary": "Submit an intent",
        "description": "Idempotent by intentId: the same target and a payload of the same bytes give the intent as it "
        "stands; anything else under the same intentId is a conflict.",
        "parameters": [_WAIT],
        "requestBody": {"required": True, "content": _json("Submission")},
        "responses": _answers(
            ("200", "Stored, now or earlier.", "Intent"),
            INVALID,
            METHOD,
            ("408", "request_timeout: the body came too slowly."),
            ("409", "idempotency_conflict; details: intentId, existingTarget, incomingTarget."),
            ("413", "body_too_large."),
            BACKLOG,
            INTERNAL,
            UNAVAILABLE,
        ),
    }


def _read(operation: str, summary: str, schema: str) -> dict[str, Any]:
    return {
        "operationId": operation,
        "summary": summary,
        "parameters": [_ID],
        "responses": _answers(("200", summary + ".", schema), NOT_FOUND, METHOD, INTERNAL, UNAVAILABLE),
    }


def _probe(operation: str, summary: str, yes: str, no: str | None = None) -> dict[str, Any]:
    text = {"text/plain": {"schema": {"type": "string"}}}
    answers = {"200": {"description": f"{yes}.", "content": text}}
    if no is not None:
        answers["503"] = {"description": f"{no}.", "content": text}
    return {"operationId": operation, "summary": summary, "responses": answers}


def _answers(*rows: tuple[str, ...]) -> dict[str, Any]:
    return {
        status: {"description": meaning, "content": _json(schema[0] if schema else "Error")}
        for status, meaning, *schema in rows
    }


def _json(schema: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REF.format(name=schema)}}}
