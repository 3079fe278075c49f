"""`run_as_leader` for programs without an event loop: the job runs in the calling thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fencehold.model.errors import ConfigurationError
from fencehold.runtime.election.job_checks import returned
from fencehold.runtime.election.leader_job import LeaderJob, is_end_of
from fencehold.runtime.election.term import Term
from fencehold.sync.background_loop import BackgroundLoop

STOP_LOOK_S = 0.1

T = TypeVar("T")


async def set_elsewhere(event: threading.Event) -> None:
    """Wait for an event that is set on another thread, or in a signal handler."""
    while not event.is_set():  # noqa: ASYNC110 - a thread's event wakes no event loop
        await asyncio.sleep(STOP_LOOK_S)


class JobThread:
    """The steps of a LeaderJob, taken on the loop's thread, around a job in this one."""

    def __init__(self, loop: BackgroundLoop, steps: LeaderJob) -> None:
        self._loop, self._steps = loop, steps

    def run(self, job: Callable[[Any], Any], shown: Callable[[Term], Any]) -> Any:
        """What the job returned; None if it was stopped first. `shown` makes of a term what the job gets."""
        try:
            while (term := self._on_loop(self._steps.next_term())) is not None:
                try:
                    with shown(term) as given:
                        value = returned(job(given))
                        if term.is_valid:
                            self._steps.done(term)
                            return value
                except Exception as error:  # noqa: BLE001 - whatever the job raises is logged, and the job tried again
                    if not is_end_of(term, error):
                        self._on_loop(self._steps.failed(term, error))
            return None
        except Exception as error:
            self._steps.gave_up(error)
            raise
        finally:
            self._on_loop(self._steps.end())

    def _on_loop(self, work: Coroutine[Any, Any, T]) -> T | None:
        """None also when the store was closed on another thread: there is no next term then."""
        try:
            return self._loop.run(work)
        except ConfigurationError as error:
            if error.code == "store_closed" and self._loop.is_stopped:
                return None
            raise
