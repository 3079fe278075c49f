"""The service's own commands as processes, read by what they log."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import psutil

from bench.children import ROOT

COMMAND = [sys.executable, "-m", "submission_manager.cli"]
EVENT_LIMIT_S = 60.0
STOP_LIMIT_S = 60.0


class Instance:
    """One `submission-manager serve` with default settings, but for those given."""

    def __init__(self, holder_id: str, dsn: str, registry: Path, settings: Mapping[str, str]) -> None:
        self.holder_id = holder_id
        self.url = ""
        own = {
            "SM_DATABASE": dsn, "SM_REGISTRY": str(registry), "SM_PORT": "0", "SM_HOLDER_ID": holder_id,
            "SM_LOG_FORMAT": "json", "SM_INIT": "false",
        }  # fmt: skip
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("SM_")}
        self._told: queue.Queue[dict[str, Any]] = queue.Queue()
        self._process = subprocess.Popen(
            [*COMMAND, "serve"], env={**inherited, **own, **settings}, cwd=ROOT, stderr=subprocess.PIPE, text=True
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stderr is not None, "started with a pipe"
        for line in self._process.stderr:
            self._told.put(json.loads(line) if line.startswith("{") else {"event": "said", "text": line})
        self._told.put({"event": "ended"})

    def wait_for(self, event: str, limit_s: float = EVENT_LIMIT_S) -> dict[str, Any]:
        """The next fact of this name; others are passed over."""
        while True:
            try:
                told = self._told.get(timeout=limit_s)
            except queue.Empty:
                raise TimeoutError(f"{self.holder_id} did not log {event!r} within {limit_s:g} s") from None
            if told.get("event") == "serving":
                self.url = told["url"]
            if told.get("event") == event:
                return told
            if told.get("event") == "ended":
                raise RuntimeError(f"{self.holder_id} ended before it logged {event!r}")

    @property
    def memory_mb(self) -> float:
        return float(psutil.Process(self._process.pid).memory_info().rss / 1e6)

    @property
    def memory_peak_mb(self) -> float:
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
        raise RuntimeError("the kernel does not say how much memory it had")

    def counted(self) -> dict[str, float]:
        """Every series of /metrics."""
        lines = httpx.get(f"{self.url}/metrics", timeout=EVENT_LIMIT_S).text.splitlines()
        series = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in series}

    def ask_to_stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def ended(self) -> None:
        if self._process.wait(STOP_LIMIT_S):
            raise RuntimeError(f"{self.holder_id} ended with {self._process.returncode}")

    def kill(self) -> None:
        """kill -9"""
        self._process.kill()
        self._process.wait()


class Gateway:
    """`submission-manager gateway`, which accepts everything at once."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [*COMMAND, "gateway", "--port", "0"], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None, "started with a pipe"
        said = self._process.stdout.readline()
        if not said.startswith("serving on "):
            raise RuntimeError(f"the gateway did not start: {said!r}")
        self.url = said.split()[-1]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
