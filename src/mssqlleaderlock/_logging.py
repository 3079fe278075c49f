"""Structured lines on the stdlib logger `mssqlleaderlock`: `lock_acquired attempt=1 name=billing`."""

from __future__ import annotations

import logging

from fencehold.telemetry.lock_logs import StructuredLogger


def get_logger(name: str = "mssqlleaderlock") -> StructuredLogger:
    return StructuredLogger(logging.getLogger(name))
