"""The statements of a run, from .sql files: `{schema}.` is replaced, `:parameters` are put into the driver's style."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import resources

from fencehold.backends.sql.statements import named, pyformat

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]*", re.ASCII)


class RunStatements:
    """The statements of one dialect for one schema; item access by file name."""

    def __init__(self, dialect: str, schema: str = "") -> None:
        assert not schema or _SCHEMA.fullmatch(schema), "the run chose its name itself"
        self._style: Callable[[str], str] = pyformat if dialect == "postgres" else named
        folder = resources.files(__package__) / "sql" / dialect
        files = {file.name.removesuffix(".sql"): file.read_text("utf-8") for file in folder.iterdir()}
        self._texts = {name: text.replace("{schema}", f'"{schema}"') for name, text in files.items()}

    def __getitem__(self, name: str) -> str:
        lines = (line for line in self._texts[name].splitlines() if not line.startswith("--"))
        return self._style("\n".join(lines).strip().removesuffix(";"))

    def script(self, name: str) -> str:
        """Several statements as one text, which has no parameters."""
        return self._texts[name]
