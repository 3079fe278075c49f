"""The service's statements in one dialect; those that create tables or probe a connection are fencehold's own."""

from __future__ import annotations

from collections.abc import Callable

from fencehold.backends.sql.statements import Statements, Topic, named

TABLE = "submission_intents"


class StoreStatements(Statements):
    def __init__(self, dialect: str, fencehold_package: str, style: Callable[[str], str] = named) -> None:
        super().__init__("submission_manager.stores", TABLE, style, Topic(dialect, TABLE))
        self._shared = Statements(fencehold_package, TABLE, style)

    def __getitem__(self, name: str) -> str:
        return super().__getitem__(name) if name in self else self._shared[name]

    def named(self, name: str) -> str:
        return super().named(name) if name in self else self._shared.named(name)

    def are_applied(self, steps: set[str]) -> bool:
        return steps >= {step.name for step in self.steps}
