"""Structured lines on the stdlib logger `pgleaderlock`: `lock_acquired key1=1 key2=2`."""

from __future__ import annotations

import logging

from fencehold.telemetry.lock_logs import StructuredLogger


def get_logger(name: str = "pgleaderlock") -> StructuredLogger:
    return StructuredLogger(logging.getLogger(name))
