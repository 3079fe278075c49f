"""The bridge behind the addresses that Cosmos DB has for procedures, so that the driver's own requests reach it."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from azure.cosmos.exceptions import CosmosHttpResponseError

from tests.fencehold.backends.cosmos.items.procedures.bridge import Bridge

CONTAINER = "/dbs/{database}/colls/{container}"
CHARGED = {"x-ms-request-charge": "7.25"}


class Front:
    """`asked`: what came, in order."""

    def __init__(self, bridge: Bridge, space: str) -> None:
        self._bridge = bridge
        self._space = space
        self.asked: list[str] = []

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/", self.account)
        app.router.add_get(CONTAINER + "{tail:/?}", self.container)
        app.router.add_post(CONTAINER + "/sprocs{tail:/?}", self.create)
        app.router.add_post(CONTAINER + "/sprocs/{name}{tail:/?}", self.execute)
        return app

    async def account(self, request: web.Request) -> web.Response:
        here = [{"name": "here", "databaseAccountEndpoint": f"http://{request.host}/"}]
        policy = {"defaultConsistencyLevel": "Session"}
        body = {"writableLocations": here, "readableLocations": here, "userConsistencyPolicy": policy}
        return web.json_response(body)

    async def container(self, request: web.Request) -> web.Response:
        key = {"paths": ["/pk"], "kind": "Hash"}
        return web.json_response({"id": request.match_info["container"], "_rid": "r", "partitionKey": key})

    async def create(self, request: web.Request) -> web.Response:
        body = await request.json()
        return self._told("create_procedure", name=body["id"], body=body["body"])

    async def execute(self, request: web.Request) -> web.Response:
        [partition] = json.loads(request.headers["x-ms-documentdb-partitionkey"])
        name, parameters = request.match_info["name"], await request.json()
        return self._told("execute", partition=partition, name=name, parameters=parameters)

    def _told(self, verb: str, **more: object) -> web.Response:
        self.asked.append(verb)
        try:
            answer = self._bridge.ask(self._space, verb, **more)
        except CosmosHttpResponseError as fault:
            headers = {**CHARGED, "x-ms-substatus": str(fault.sub_status or 0)}
            body = {"code": "Told", "message": fault.http_error_message}
            return web.json_response(body, status=fault.status_code or 500, headers=headers)
        return web.json_response(answer, headers=CHARGED)


@asynccontextmanager
async def http_front(bridge: Bridge, space: str) -> AsyncIterator[tuple[str, list[str]]]:
    """Its address, and what was asked of it."""
    front = Front(bridge, space)
    runner = web.AppRunner(front.application())
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"127.0.0.1:{runner.addresses[0][1]}", front.asked
    finally:
        await runner.cleanup()
