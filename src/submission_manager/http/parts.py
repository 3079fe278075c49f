"""The parts that the HTTP application is built from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fencehold import FactSink, Leader
from submission_manager.answers import Answers
from submission_manager.metrics import Metrics
from submission_manager.ports import IntakePort
from submission_manager.registry.registry import Registry
from submission_manager.settings import Settings


@dataclass(frozen=True)
class Parts:
    intake: IntakePort
    registry: Registry
    leader: Leader
    metrics: Metrics
    facts: FactSink
    settings: Settings
    on_created: Callable[[], None] = lambda: None  # an intent was stored: a leader here refreshes at once
    keeps_from_leading: Callable[[], str | None] = lambda: None  # the error that keeps it from leading
    answers: Answers = field(default_factory=Answers)  # the database's answers to this process
