"""/docs: the OpenAPI document as an HTML page that loads nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from typing import Any

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
