"""The bridge behind the addresses that Cosmos DB has for procedures, so that the driver's own requests reach it."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from azure.cosmos.exceptions import CosmosHttpResponseError

from tests.cosmos_procedures.bridge import Bridge

SCRIPTS = "/dbs/{database}/colls/{container}/sprocs"
CHARGED = {"x-ms-request-charge": "7.25"}


@asynccontextmanager
async def http_front(bridge: Bridge, space: str) -> AsyncIterator[tuple[str, list[str]]]:
    """Its address, and what was asked of it."""
    asked: list[str] = []

    def told(request: web.Request, verb: str, **more: object) -> web.Response:
        asked.append(verb)
        try:
            answer = bridge.ask(space, verb, **more)
        except CosmosHttpResponseError as fault:
            headers = {**CHARGED, "x-ms-substatus": str(fault.sub_status or 0)}
            body = {"code": "Told", "message": fault.http_error_message}
            return web.json_response(body, status=fault.status_code or 500, headers=headers)
        return web.json_response(answer, headers=CHARGED)

    async def account(request: web.Request) -> web.Response:
        here = [{"name": "here", "databaseAccountEndpoint": f"http://{request.host}/"}]
        policy = {"defaultConsistencyLevel": "Session"}
        body = {"writableLocations": here, "readableLocations": here, "userConsistencyPolicy": policy}
        return web.json_response(body)

    async def container(request: web.Request) -> web.Response:
        key = {"paths": ["/pk"], "kind": "Hash"}
        return web.json_response({"id": request.match_info["container"], "_rid": "r", "partitionKey": key})

    async def create(request: web.Request) -> web.Response:
        body = await request.json()
        return told(request, "create_procedure", name=body["id"], body=body["body"])

    async def execute(request: web.Request) -> web.Response:
        [partition] = json.loads(request.headers["x-ms-documentdb-partitionkey"])
        name, parameters = request.match_info["name"], await request.json()
        return told(request, "execute", partition=partition, name=name, parameters=parameters)

    app = web.Application()
    app.router.add_get("/", account)
    app.router.add_get("/dbs/{database}/colls/{container}{tail:/?}", container)
    app.router.add_post(SCRIPTS + "{tail:/?}", create)
    app.router.add_post(SCRIPTS + "/{name}{tail:/?}", execute)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"127.0.0.1:{runner.addresses[0][1]}", asked
    finally:
        await runner.cleanup()
