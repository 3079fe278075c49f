"""Real worker processes: started, told, frozen and killed; none outlives its block."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.across_packages.processes import EVENT_LIMIT_S, Process


class LaborerProcess(Process):
    def __init__(self, url: str, kind: str, worker_id: str, *options: str) -> None:
        self._launch(worker_id, "tests.fencehold.runtime.outbox.laborer", url, kind, "--id", worker_id, *options)

    def has_ended(self) -> bool:
        return self._child.poll() is not None

    def exit_code(self) -> int:
        return self._child.wait(EVENT_LIMIT_S)


@contextmanager
def laborers(url: str) -> Iterator[Any]:
    started: list[LaborerProcess] = []

    def start(kind: str, worker_id: str, *options: str) -> LaborerProcess:
        started.append(LaborerProcess(url, kind, worker_id, *options))
        return started[-1]

    try:
        yield start
    finally:
        for process in started:
            process.kill()
