"""Groups of commands, each imported only when it is asked for: so every command starts without the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click


class Commands(click.Group):
    """A group of commands. `imports`: for each command's name, a function that imports and returns the command."""

    def __init__(self, *given: Any, imports: Mapping[str, Callable[[], click.Command]], **options: Any) -> None:
        super().__init__(*given, **options)
        self._imports = imports

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self._imports)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self._imports[cmd_name]() if cmd_name in self._imports else None
