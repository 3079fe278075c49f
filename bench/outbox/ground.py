"""What every part works on: the databases and the systems, made once for the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bench.outbox.databases import Databases
from bench.outbox.environments import CannotInstall
from bench.outbox.systems import ALL_PEERS, QUICK_PEERS, System, ours_on_uvloop
from bench.report import Tell
from bench.server import Bench
from bench.sizes import OutboxSizes


@dataclass(frozen=True)
class Ground:
    bench: Bench
    databases: Databases
    sizes: OutboxSizes
    tell: Tell
    peers: tuple[System, ...]
    on_uvloop: System | None


@contextmanager
def prepared(bench: Bench, sizes: OutboxSizes, tell: Tell) -> Iterator[Ground]:
    """A peer that cannot be installed here is left out, and said so."""
    peers = []
    for peer in ALL_PEERS if sizes.with_every_peer else QUICK_PEERS:
        tell(f"environment of {peer.label} ...")
        try:
            peers.append(peer.installed())
        except CannotInstall as error:
            tell(f"{peer.label} is left out: {error}")
    try:
        on_uvloop = ours_on_uvloop()
    except CannotInstall as error:
        on_uvloop = None
        tell(f"uvloop is left out: {error}")
    databases = Databases(bench)
    try:
        yield Ground(bench, databases, sizes, tell, tuple(peers), on_uvloop)
    finally:
        databases.close()
