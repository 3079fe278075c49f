"""The servers that one URL names, as single addresses in the order to try them.

libpq and psycopg try the hosts of a URL in order and give each of them the whole `connect_timeout`. A host that is
switched off answers nothing at all, so a limit on the whole attempt is over before the second host is tried. Callers
that connect therefore split the URL here and divide the limit among the addresses. A place (`Place`) is one of these
servers: its host, its port and its address. The place that answered last is tried first.
"""

from __future__ import annotations

import asyncio
import configparser
import contextlib
import math
import os
import socket
from collections.abc import Iterable, Mapping
from typing import Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo

HEAD_START_S = 2.0  # libpq's own minimum for one host; after it the next one is tried too
CONNECT_TIMEOUT_S_MIN = 2  # libpq treats 1 as 2
REMEMBERED_MAX = 1000
KEYS = {"host": "PGHOST", "port": "PGPORT", "hostaddr": "PGHOSTADDR"}  # and the variable libpq reads without it

Place = tuple[str, ...]  # the values of the three keys, in that order; empty: libpq chooses

_answered_last: dict[str, Place] = {}
_silent: dict[str, set[Place]] = {}


def places(info: str) -> list[Place]:
    """Return the places that a connection string lists: host, port and address of each server.

    A single port counts for all hosts, and what is missing is taken from the environment, as in libpq. Raises
    ValueError if the numbers of hosts, ports and addresses do not fit together.
    """
    given = conninfo_to_dict(info)
    hosts, ports, addresses = (_value(given, key).split(",") for key in KEYS)
    count = max(len(hosts), len(addresses))
    hosts, addresses = (column if any(column) else [""] * count for column in (hosts, addresses))
    ports = ports * count if len(ports) == 1 else ports
    if not len(hosts) == len(ports) == len(addresses):
        raise ValueError(f"{count} hosts, {len(ports)} ports, {len(addresses)} addresses")
    return list(zip(hosts, ports, addresses, strict=True))


async def addresses(place: Place) -> list[Place]:
    """Return one place for each address that the name of the host resolves to.

    A place without a name (an address or a local socket) is returned alone. Raises OSError if the name is not resolved.
    """
    if not _is_name(place):
        return [place]
    host, port, _ = place
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port or None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise _unresolved(host, error) from None
    return _each(place, found)


def addresses_sync(place: Place) -> list[Place]:
    """Return what `addresses` returns, by the system's own resolver; it may block the calling thread."""
    if not _is_name(place):
        return [place]
    host, port, _ = place
    try:
        found = socket.getaddrinfo(host, port or None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise _unresolved(host, error) from None
    return _each(place, found)


def in_order(info: str, found: Iterable[Place]) -> list[Place]:
    """Return the places in the order to try them.

    First the place that answered last, then the other addresses of its host, then the others in the order given; last
    come the places that did not answer when they were last tried.
    """
    last, silent = _answered_last.get(info, ()), _silent.get(info, set())
    return sorted(found, key=lambda place: (place in silent, (place != last) + (place[:2] != last[:2])))


def at(info: str, place: Place) -> str:
    """Return the connection string that leads to this place alone, with all other settings of `info`."""
    given: dict[str, Any] = {key: value for key, value in conninfo_to_dict(info).items() if key not in KEYS}
    # Empty values are left out: with them libpq would read neither its environment nor a service file.
    return make_conninfo(**given, **{key: value for key, value in zip(KEYS, place, strict=True) if value})


def answered(info: str, place: Place) -> None:
    """Remember that a usable server is at this place, so that it is tried first next time."""
    spoke(info, place)
    if len(_answered_last) < REMEMBERED_MAX or info in _answered_last:
        _answered_last[info] = place


def spoke(info: str, place: Place) -> None:
    """Remember that something answered at this place, even if it refused: the place no longer counts as silent."""
    _silent.get(info, set()).discard(place)


def said_nothing(info: str, place: Place) -> None:
    """Remember that this place did not answer in time, so that it is tried last until it answers."""
    if len(_silent) < REMEMBERED_MAX or info in _silent:
        _silent.setdefault(info, set()).add(place)


def head_start_s(limit_s: float, count: int) -> float:
    """Return how many seconds one of `count` addresses is tried before the next one is tried too: at most 2 s."""
    return min(HEAD_START_S, limit_s / max(1, count))


def share_s(limit_s: float, count: int) -> int:
    """Return the `connect_timeout` for one of `count` addresses that are tried one after the other: at least 2 s."""
    return max(CONNECT_TIMEOUT_S_MIN, math.ceil(limit_s / count))


def named(info: str) -> str:
    """Return the hosts and ports of the connection string as text for a message."""
    return ", ".join(f"{host or address or 'the local socket'}:{port or 5432}" for host, port, address in places(info))


def _value(given: Mapping[str, Any], key: str) -> str:
    """Return the value that libpq would use for `key`; empty if there is none.

    The connection string's value comes first, then the one of the service file, then the one of the environment.
    """
    return str(given.get(key) or _of_service(given).get(key) or os.environ.get(KEYS[key], ""))


def _of_service(given: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the settings of the service that is named, from libpq's service file, as a mapping from key to value.

    The connection string or the environment names the service. Empty if none is named, or if no readable file has it;
    libpq then reports that itself.
    """
    name = str(given.get("service") or os.environ.get("PGSERVICE") or "")
    if not name:
        return {}
    own = os.environ.get("PGSERVICEFILE") or os.path.expanduser("~/.pg_service.conf")
    shared = os.path.join(os.environ.get("PGSYSCONFDIR", "/etc/postgresql-common"), "pg_service.conf")
    for path in (own, shared):
        parser = configparser.RawConfigParser(strict=False, delimiters=("=",), comment_prefixes=("#",))
        with contextlib.suppress(configparser.Error, OSError, UnicodeError):
            parser.read(path)
            if parser.has_section(name):
                return dict(parser.items(name))
    return {}


def _is_name(place: Place) -> bool:
    host, _, address = place
    return bool(host) and not address and not host.startswith(("/", "@"))  # those are sockets of this machine


def _each(place: Place, found: Iterable[tuple[Any, ...]]) -> list[Place]:
    addresses = (str(address) for *_, (address, *_) in found)
    return [(*place[:2], address) for address in dict.fromkeys(addresses)]


def _unresolved(host: str, error: OSError) -> OSError:
    return OSError(f"the host name {host!r} cannot be resolved: {error}")
