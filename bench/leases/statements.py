"""The backend's own statements and their parameters, for programs that send them by bare psycopg."""

from __future__ import annotations

import secrets
from typing import Any

from fencehold.backends.postgres.session import PREPARE_AFTER
from fencehold.backends.sql.statements import LEASES, Statements, pyformat

__all__ = ["PREPARE_AFTER", "STATEMENTS", "acquire_params", "release_params", "renew_params"]

STATEMENTS = Statements("fencehold.backends.postgres", LEASES.default_table, pyformat)
LEASE_S = 30.0


def acquire_params(name: str, holder: str) -> dict[str, Any]:
    return {"name": name, "holder": holder, "lease": LEASE_S, "nonce": secrets.token_hex(16)}


def renew_params(name: str, holder: str, epoch: int) -> dict[str, Any]:
    return {**release_params(name, holder, epoch), "leases": [LEASE_S]}


def release_params(name: str, holder: str, epoch: int) -> dict[str, Any]:
    return {"names": [name], "holders": [holder], "epochs": [epoch]}
