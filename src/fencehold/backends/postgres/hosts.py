"""The servers that one URL names, as single addresses to try: the one that answered last comes first.

libpq and psycopg try the hosts of a URL in order and give each of them the whole `connect_timeout`. A host that is
switched off answers nothing at all, so a limit on the whole attempt is over before the second host is asked. Whoever
connects therefore splits the URL here and shares the limit between the addresses.
"""

from __future__ import annotations

import asyncio
import math
import socket
from typing import Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo

HEAD_START_S = 2.0  # libpq's own floor for one host; then the next one is asked too
CONNECT_TIMEOUT_S_MIN = 2  # libpq takes 1 for 2
REMEMBERED_MAX = 1000
KEYS = ("host", "port", "hostaddr")

Place = tuple[str, ...]  # of the three keys, in that order

_answered_last: dict[str, Place] = {}


async def attempts(info: str) -> tuple[list[str], list[Exception]]:
    """One connection string for each address, in the order to try them; and what became of names without an address."""
    found: list[Place] = []
    errors: list[Exception] = []
    for place in places(info):
        try:
            found += await _resolved(place)
        except OSError as error:
            errors.append(OSError(f"the host name {place[0]!r} cannot be resolved: {error}"))
    return _in_order(info, found), errors


def attempts_sync(info: str) -> list[str]:
    """The same for a caller without an event loop: one for each host, whose name the driver resolves."""
    return _in_order(info, places(info))


def answered(info: str, attempt: str) -> None:
    """Remember that `attempt` reached a usable server: it is the first to be tried next time."""
    if len(_answered_last) < REMEMBERED_MAX or info in _answered_last:
        _answered_last[info] = places(attempt)[0]


def head_start_s(limit_s: float, count: int) -> float:
    """How long one of several addresses is asked alone: its share of the limit, at most libpq's own floor."""
    return min(HEAD_START_S, limit_s / count)


def share_s(limit_s: float, count: int) -> int:
    """The `connect_timeout` of one of several addresses that are tried one after the other."""
    return max(CONNECT_TIMEOUT_S_MIN, math.ceil(limit_s / count))


def places(info: str) -> list[Place]:
    """The hosts that a connection string lists. Raises ValueError unless each has its port and address.

    One port alone counts for all hosts, as in libpq.
    """
    given = conninfo_to_dict(info)
    hosts, ports, addresses = (str(given.get(key) or "").split(",") for key in KEYS)
    count = max(len(hosts), len(addresses))
    hosts, addresses = (column if any(column) else [""] * count for column in (hosts, addresses))
    ports = ports * count if len(ports) == 1 else ports
    if not len(hosts) == len(ports) == len(addresses):
        raise ValueError(f"{count} hosts, {len(ports)} ports, {len(addresses)} addresses")
    return list(zip(hosts, ports, addresses, strict=True))


def named(info: str) -> str:
    """The hosts and ports for a message."""
    return ", ".join(f"{host or address or 'the local socket'}:{port or 5432}" for host, port, address in places(info))


async def _resolved(place: Place) -> list[Place]:
    host, port, address = place
    if address or not host or host.startswith(("/", "@")):  # an address, or a socket of this machine
        return [place]
    answers = await asyncio.get_running_loop().getaddrinfo(host, port or None, type=socket.SOCK_STREAM)
    return [(host, port, address) for address in dict.fromkeys(str(answer[4][0]) for answer in answers)]


def _in_order(info: str, found: list[Place]) -> list[str]:
    last = _answered_last.get(info, ())
    found.sort(key=lambda place: (place != last) + (place[:2] != last[:2]))
    given: dict[str, Any] = {key: value for key, value in conninfo_to_dict(info).items() if key not in KEYS}
    return [make_conninfo(**{**given, **dict(zip(KEYS, place, strict=True))}) for place in found]
