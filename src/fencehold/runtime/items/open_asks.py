"""Requests for leases that have no answer yet, and which leases have ended here since they were sent.

Such a request may have been granted an older lease on the same item, by this same holder. The store let the later one
replace it, so it is over, although nothing else here says so any more when its answer comes at last.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

Place = tuple[str, str, str]  # kind, holder_id, id


class OpenAsks:
    """Any thread may use it. It forgets a lease as soon as no request is open that was sent before its end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0
        self._open: dict[int, None] = {}  # the oldest first
        self._ended: dict[Place, tuple[int, int]] = {}  # its token, and the last request before; the oldest first

    @contextmanager
    def one(self) -> Iterator[None]:
        """A request is under way; hold what it was granted before this ends."""
        with self._lock:
            self._last += 1
            mine = self._last
            self._open[mine] = None
        try:
            yield
        finally:
            with self._lock:
                del self._open[mine]
                self._forget(before=next(iter(self._open), self._last + 1))

    def ended(self, place: Place, token: int) -> None:
        """This lease, or one that had replaced it, is given back."""
        with self._lock:
            if self._open:
                newest = max(token, self._ended.pop(place, (0, 0))[0])
                self._ended[place] = newest, self._last

    def has_ended(self, place: Place, token: int) -> bool:
        """Whether a lease of this token has been replaced by one that has ended."""
        with self._lock:
            return self._ended.get(place, (0, 0))[0] > token

    def _forget(self, before: int) -> None:
        while self._ended:
            oldest = next(iter(self._ended))
            if self._ended[oldest][1] >= before:
                return
            del self._ended[oldest]
