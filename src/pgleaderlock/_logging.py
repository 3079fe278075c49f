"""Structured log lines on the standard logger `pgleaderlock`, such as `lock_acquired key1=1 key2=2`."""

from __future__ import annotations

import logging

from fencehold.telemetry.lock_logs import StructuredLogger

#: What spec 002 calls this kind of logger.
NDLogger = StructuredLogger


def get_logger(name: str = "pgleaderlock") -> StructuredLogger:
    """Return a structured logger, used like this: `get_logger().bind(key1=1).info("lock_acquired", attempt=3)`."""
    return StructuredLogger(logging.getLogger(name))
