"""The OpenAPI document, made from the types of wire.py and the table of routes below; and an HTML page of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
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


_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1b1b;background:#fff}
h2{margin-top:2.5rem;border-top:1px solid #ddd;padding-top:1rem;font:600 1.1rem ui-monospace,monospace}
table{border-collapse:collapse}td{padding:.15rem .8rem .15rem 0;vertical-align:top}td:first-child{white-space:nowrap}
code,pre{font-family:ui-monospace,monospace;font-size:.9em}pre{background:#f5f5f5;padding:.8rem;overflow-x:auto}
b.verb{color:#fff;background:#1d5f8a;border-radius:.3rem;padding:.1rem .5rem;margin-right:.6rem}
@media(prefers-color-scheme:dark){body{color:#e6e6e6;background:#161616}pre{background:#222}h2{border-color:#333}}
"""


def page(document: dict[str, Any]) -> bytes:
    info = document["info"]
    return "\n".join(
        [
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(info["title"])}</title>',
            f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{_STYLE}</style></head><body>',
            f"<h1>{escape(info['title'])} <small>{escape(info['version'])}</small></h1>",
            f"<p>{escape(info['description'])}</p>",
            '<p>For programs: <a href="openapi.json">openapi.json</a></p>',
            *(part for path, verbs in document["paths"].items() for part in _path(path, verbs)),
            "<h2>Schemas</h2>",
            *(_schema(name, schema) for name, schema in document["components"]["schemas"].items()),
            "</body></html>",
        ]
    ).encode()


def _path(path: str, verbs: dict[str, Any]) -> Iterator[str]:
    for verb, operation in verbs.items():
        yield f'<h2><b class="verb">{verb.upper()}</b>{escape(path)}</h2>'
        yield f"<p>{escape(operation['summary'])}. {escape(operation.get('description', ''))}</p>"
        parameters = operation.get("parameters", [])
        yield _table((f"{one['name']} ({one['in']})", one["description"]) for one in parameters)
        if "requestBody" in operation:
            yield f"<p>Body: {_link(operation['requestBody']['content'])}</p>"
        answers = operation["responses"].items()
        yield _table((status, f"{escape(one['description'])} {_link(one['content'])}", True) for status, one in answers)


def _table(rows: Any) -> str:
    cells = [(row[0], row[1] if len(row) > 2 else escape(row[1])) for row in rows]
    body = "".join(f"<tr><td><code>{escape(name)}</code></td><td>{html}</td></tr>" for name, html in cells)
    return f"<table>{body}</table>" if cells else ""


def _link(content: dict[str, Any]) -> str:
    for media, one in content.items():
        name = one["schema"].get("$ref", "").rpartition("/")[2]
        return f'<a href="#{escape(name)}">{escape(name)}</a>' if name else f"<code>{escape(media)}</code>"
    return ""


def _schema(name: str, schema: dict[str, Any]) -> str:
    return f'<h3 id="{escape(name)}">{escape(name)}</h3><pre>{escape(json.dumps(schema, indent=2))}</pre>'
