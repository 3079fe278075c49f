"""What happens between BEGIN and COMMIT on the connections that the library opens to a SQLite file.

A process that stands still there stops everybody who wants to write. So: no turn of the event loop, which may be as
late as the program keeps it busy, and no call of anything that could take long.
"""

from __future__ import annotations

import ast
import gc
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from fencehold.backends.sqlite import session as session_module
from fencehold.backends.sqlite.session import Session

#: Calls of C code that neither wait nor read nor write anything; all others are named by the witness.
HARMLESS_C = {"_sqlite3", "sqlite3", "_json", "_datetime", "datetime", "_thread", "re"}
HARMLESS_C_CALLS = {"clock_gettime"}
HARMFUL_BUILTINS = {"open", "print", "input", "exec", "eval", "compile", "__import__", "breakpoint"}


class LockWitness:
    """`faults` names what should not have happened; `verbs` who has written, by the name of the function."""

    def __init__(self, harmless: tuple[str, ...]) -> None:
        self.faults: list[str] = []
        self.verbs: set[str] = set()
        self.transactions = 0
        self._harmless = harmless
        self._open = threading.local()

    # --- seen by the connection, on the thread it is used on ---

    def statement(self, text: str) -> None:
        if text.startswith("BEGIN"):
            self._open.is_open = self._open.is_watched = True
            self.transactions += 1
        elif text.startswith(("COMMIT", "ROLLBACK")) and not text.startswith("ROLLBACK TO"):
            self._open.is_open = self._open.is_watched = False

    def work_ended(self) -> None:
        self._open.is_watched = False
        if getattr(self._open, "is_open", False):
            self.faults.append("a transaction was left open, for the event loop to go on with")

    # --- seen by the thread's profile ---

    def called(self, frame: FrameType, event: str, arg: Any) -> None:
        if not getattr(self._open, "is_watched", False):
            return
        if event == "call" and not self._is_harmless(frame.f_globals.get("__name__", "")):
            self.faults.append(f"{frame.f_globals.get('__name__')}.{frame.f_code.co_name} was called")
        elif event == "c_call" and not _is_harmless_c(arg):
            self.faults.append(f"{getattr(arg, '__module__', '')}.{arg.__qualname__} was called")

    def _is_harmless(self, module: str) -> bool:
        return module == __name__ or any(module == one or module.startswith(f"{one}.") for one in self._harmless)


def _is_harmless_c(function: Any) -> bool:
    owner = getattr(function, "__self__", None)
    module = getattr(function, "__module__", None) or type(owner).__module__
    if module == "builtins":
        return function.__name__ not in HARMFUL_BUILTINS
    return module in HARMLESS_C or function.__name__ in HARMLESS_C_CALLS


@contextmanager
def witnessed(monkeypatch: Any, *harmless: str) -> Iterator[LockWitness]:
    """Of sessions begun inside the block. Only these modules may be called while a transaction is open."""
    witness = LockWitness(harmless)
    connect, write, run = session_module.connect, Session.write, Session._sorted

    def traced(*args: Any) -> sqlite3.Connection:
        connection = connect(*args)
        connection.set_trace_callback(witness.statement)
        return connection

    async def noted(self: Session, *args: Any, **options: Any) -> Any:
        witness.verbs.add(sys._getframe(1).f_code.co_name)
        return await write(self, *args, **options)

    def ended(self: Session, work: Callable[[], Any]) -> Any:
        try:
            return run(self, work)
        finally:
            witness.work_ended()

    monkeypatch.setattr(session_module, "connect", traced)
    monkeypatch.setattr(Session, "write", noted)
    monkeypatch.setattr(Session, "_sorted", ended)
    gc.collect()
    gc.disable()  # it finalises what earlier tests left, on whichever thread it happens to run: here it would be a call
    threading.setprofile(witness.called)
    try:
        yield witness
    finally:
        threading.setprofile(None)
        gc.enable()
        monkeypatch.undo()


def writers(*files: Path) -> set[str]:
    """Every function in these files that writes in a transaction: its own code calls `write` of a session."""
    return {
        function.name
        for file in files
        for function in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(function, ast.AsyncFunctionDef) and any(map(_is_write, ast.walk(function)))
    }


def _is_write(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "write"
        and isinstance(node.func.value, ast.Attribute)
    )
