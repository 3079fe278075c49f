"""What every part of an instance uses: its clock, its metrics and its log."""

from __future__ import annotations

from dataclasses import dataclass

from fencehold import FactSink
from fencehold.service import Clock
from submission_manager.executor.metrics import ExecutorMetrics


@dataclass(frozen=True)
class ServiceContext:
    clock: Clock
    metrics: ExecutorMetrics
    facts: FactSink
