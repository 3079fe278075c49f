"""What the requests of a backend were charged, by verb."""

from collections import defaultdict
from typing import Any


class Charged:
    """Facts of a backend; keeps the request units of each request."""

    def __init__(self) -> None:
        self.units: dict[str, list[float]] = defaultdict(list)

    def fact(self, event: str, **fields: Any) -> None:
        if event == "request_charged":
            self.units[fields["verb"]].append(fields["request_units"])
