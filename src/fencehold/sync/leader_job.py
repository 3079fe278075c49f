"""`run_as_leader` for programs without an event loop: the job runs in the calling thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fencehold.model.errors import ConfigurationError
from fencehold.runtime.election.leader_job import LeaderJob, is_end_of, returned
from fencehold.runtime.election.term import Term
from fencehold.sync.background_loop import BackgroundLoop

STOP_LOOK_S = 0.1

T = TypeVar("T")


async def set_elsewhere(event: threading.Event) -> None:
    """Wait until another thread, or a signal handler, sets the event."""
    while not event.is_set():  # noqa: ASYNC110 - an event of threads cannot wake an event loop
        await asyncio.sleep(STOP_LOOK_S)


class JobThread:
    """Runs a job in the calling thread, and the steps of its LeaderJob around the job on the event loop's thread."""

    def __init__(self, loop: BackgroundLoop, steps: LeaderJob) -> None:
        self._loop, self._steps = loop, steps

    def run(self, job: Callable[[Any], Any], shown: Callable[[Term], Any]) -> Any:
        """Run the job and return its result; return None if it was stopped before it was done.

        `shown` makes, from the async term, the term that the job gets. Raises ConfigurationError when a retry cannot
        help, and the job's error when the backoff gives up.
        """
        try:
            while (term := self._on_loop(self._steps.next_term())) is not None:
                try:
                    with shown(term) as given:
                        value = returned(job(given))
                        if term.is_valid:
                            self._steps.done(term)
                            return value
                except Exception as error:  # noqa: BLE001 - any error is logged, and the job is tried again
                    if not is_end_of(term, error):
                        self._on_loop(self._steps.failed(term, error))
            return None
        except Exception as error:
            self._steps.gave_up(error)
            raise
        finally:
            self._on_loop(self._steps.end())

    def _on_loop(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Run `work` on the event loop and return its result.

        Returns None if the store was closed on another thread, so that there is no next term.
        """
        try:
            return self._loop.run(work)
        except ConfigurationError as error:
            if error.code == "store_closed" and self._loop.is_stopped:
                return None
            raise
