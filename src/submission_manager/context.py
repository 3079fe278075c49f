"""What every part of an instance uses: its clock, its metrics and its log."""

from __future__ import annotations

from dataclasses import dataclass

from fencehold import FactSink
from fencehold.service import Clock
from submission_manager.metrics import Metrics


@dataclass(frozen=True)
class ServiceContext:
    clock: Clock
    metrics: Metrics
    facts: FactSink
