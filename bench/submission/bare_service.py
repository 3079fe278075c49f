"""What one would write first: Starlette, psycopg, one INSERT for each request, with uvicorn set as the service sets it.

python -m bench.submission.bare_service URL CONNECTIONS

Tells: serving (port). It stores the id, the target and the payload, and answers as the service does; it knows no
contracts, no repeats, no limits and no leader.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import sys
from typing import Any

import psycopg
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from bench.telling import tell, words
from submission_manager.http.server import BACKLOG, KEEP_ALIVE_S, bound

TABLE = """
CREATE TABLE IF NOT EXISTS bare_intents (
    intent_id text PRIMARY KEY, submission_target text NOT NULL, payload bytea, status text NOT NULL DEFAULT 'pending',
    created_at timestamptz NOT NULL DEFAULT clock_timestamp())"""
INSERT = """
INSERT INTO bare_intents (intent_id, submission_target, payload) VALUES (%s, %s, %s) RETURNING created_at"""

Connection = psycopg.AsyncConnection[Any]


class Service:
    def __init__(self) -> None:
        self._idle: asyncio.LifoQueue[Connection] = asyncio.LifoQueue()

    async def open(self, url: str, connections: int) -> None:
        for _ in range(connections):
            connection = await Connection.connect(url, autocommit=True)
            connection.prepare_threshold = 0
            await connection.execute(TABLE)
            self._idle.put_nowait(connection)

    async def submit(self, request: Request) -> JSONResponse:
        asked = await request.json()
        created_at = await self._insert(
            asked["intentId"], asked["submissionTarget"], json.dumps(asked["payload"]).encode()
        )
        return JSONResponse(
            {
                "intentId": asked["intentId"], "submissionTarget": asked["submissionTarget"],
                "createdAt": created_at.isoformat(), "status": "pending",
            }
        )  # fmt: skip

    async def _insert(self, *values: str | bytes) -> dt.datetime:
        connection = await self._idle.get()
        try:
            cursor = await connection.execute(INSERT, values, binary=True)
            row = await cursor.fetchone()
        finally:
            self._idle.put_nowait(connection)
        assert row is not None, "RETURNING answers"
        return row[0]  # type: ignore[no-any-return]


async def main() -> None:
    url, connections = sys.argv[1:]
    service = Service()
    await service.open(url, int(connections))
    app = Starlette(routes=[Route("/v1/intents", service.submit, methods=["POST"])])
    config = uvicorn.Config(
        app, http="h11", ws="none", lifespan="off", log_config=None, access_log=False, server_header=False,
        proxy_headers=False, timeout_keep_alive=KEEP_ALIVE_S, backlog=BACKLOG,
    )  # fmt: skip
    listening = bound("127.0.0.1", 0)
    server = asyncio.create_task(uvicorn.Server(config).serve(sockets=[listening]))
    tell("serving", port=listening.getsockname()[1])
    async for _ in words():
        pass
    server.cancel()


if __name__ == "__main__":
    asyncio.run(main())
