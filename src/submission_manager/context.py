"""What every part of an instance uses: its clock, its metrics, its log, and its share of the database."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from fencehold import FactSink
from fencehold.service import Clock
from submission_manager.metrics import Metrics

CONCURRENT_WRITES = 4  # fenced transactions at the same time: more would only wait in the database


@dataclass(frozen=True)
class ServiceContext:
    clock: Clock
    metrics: Metrics
    facts: FactSink
    writes: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CONCURRENT_WRITES))
