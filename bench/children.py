"""Processes under measurement: told what to do on standard input, telling what happened as JSON lines."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
EVENT_LIMIT_S = 60.0


class Child:
    """`python -m MODULE WORDS...`; it ends when its standard input does."""

    def __init__(self, module: str, *words: str) -> None:
        self._name = " ".join((module, *words[1:]))
        self._told: queue.Queue[dict[str, Any]] = queue.Queue()
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None, "started with a pipe"
        for line in self._process.stdout:
            self._told.put(json.loads(line))
        self._told.put({"event": "ended"})

    def say(self, word: str) -> None:
        assert self._process.stdin is not None, "started with a pipe"
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def wait_for(self, event: str) -> dict[str, Any]:
        """The next event of this kind; others are passed over."""
        while True:
            try:
                told = self._told.get(timeout=EVENT_LIMIT_S)
            except queue.Empty:
                raise TimeoutError(f"{self._name} did not tell {event!r} within {EVENT_LIMIT_S:g} s") from None
            if told["event"] == event:
                return told
            if told["event"] == "ended":
                raise RuntimeError(f"{self._name} ended before it told {event!r}")

    def kill(self) -> None:
        """kill -9"""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        assert self._process.stdin is not None, "started with a pipe"
        self._process.stdin.close()
        try:
            self._process.wait(EVENT_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill()


@contextmanager
def children() -> Iterator[Callable[..., Child]]:
    """Starts children; none outlives the block."""
    started: list[Child] = []

    def start(module: str, *words: str) -> Child:
        started.append(Child(module, *words))
        return started[-1]

    try:
        yield start
    finally:
        for child in started:
            child.kill()
