"""What every part works on: a database of its own with the service's tables, a gateway, and instances as processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

import fencehold.sync
from bench.report import Tell
from bench.server import Bench
from bench.sizes import SubmissionSizes
from bench.submission.processes import Gateway, Instance
from submission_manager.stores.opening import LEASE_TABLE, open_store

TARGET = "bench.sms"
LEASE = "submission-manager-executor"
HELD_FOR = "10m"


class Ground:
    """`instance(holder_id, SM_...=...)` is up and answers when it is returned."""

    def __init__(self, bench: Bench, sizes: SubmissionSizes, tell: Tell, folder: Path, gateway: Gateway) -> None:
        self.bench, self.sizes, self.tell = bench, sizes, tell
        self.gateway = gateway
        self.admin = psycopg.connect(bench.dsn_of("bench-admin"), autocommit=True)
        self._registry = folder / "registry.json"
        self._registry.write_text(json.dumps({"targets": [target(gateway.url)]}))
        self._started: list[Instance] = []

    def instance(self, holder_id: str, dsn: str | None = None, **settings: str) -> Instance:
        one = Instance(holder_id, dsn or self.bench.dsn_of(holder_id), self._registry, settings)
        self._started.append(one)
        one.wait_for("serving")
        return one

    def value(self, query: str, *params: Any) -> Any:
        row = self.admin.execute(query.encode(), params).fetchone()
        assert row is not None, "one row each"
        return row[0]

    def settle(self) -> None:
        """A write of what went before must not fall into what is measured next."""
        self.admin.execute("CHECKPOINT")

    @contextlib.contextmanager
    def lease_held(self) -> Iterator[Callable[[], None]]:
        """Nobody leads until the block ends or what it gives is called."""
        with fencehold.sync.connect(self.bench.dsn_of("bench-lease"), table=LEASE_TABLE) as store:
            held = store.leases.acquire(LEASE, "bench", HELD_FOR)
            assert held is not None, "the lease is free"
            with contextlib.ExitStack() as stack:
                stack.callback(store.leases.release, held)
                yield stack.close

    def close(self) -> None:
        for one in self._started:
            one.kill()
        self.admin.close()


def target(gateway_url: str) -> dict[str, Any]:
    return {
        "submissionTarget": TARGET, "gatewayType": "sms", "gatewayUrl": gateway_url, "policy": "max_attempts",
        "maxAttempts": 3, "terminalOutcomes": ["invalid_recipient"],
    }  # fmt: skip


@contextlib.contextmanager
def prepared(bench: Bench, sizes: SubmissionSizes, tell: Tell) -> Iterator[Ground]:
    """Nothing of it is left behind: no process, no database."""
    name = f"submission_{uuid.uuid4().hex[:12]}"
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        admin = stack.enter_context(psycopg.connect(bench.dsn, autocommit=True))
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        stack.callback(admin.execute, sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
        own = bench.beside(name)
        asyncio.run(create_tables(own.dsn))
        gateway = Gateway()
        stack.callback(gateway.kill)
        ground = Ground(own, sizes, tell, folder, gateway)
        stack.callback(ground.close)
        yield ground


async def create_tables(dsn: str) -> None:
    async with fencehold.connect(dsn, table=LEASE_TABLE) as leases:
        await leases.init()
    store = open_store(dsn)
    await store.init()
    await store.close()
