"""`fencehold step-down NAME`: asks the holder to step down, and waits until its term has ended."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import click
from rich.console import Console
from rich.text import Text

from fencehold.cli import exit_codes
from fencehold.cli.leases import lease_json, no_such_lease
from fencehold.cli.screen import clean
from fencehold.cli.setup import Setup, with_setup, with_store
from fencehold.model.durations import seconds
from fencehold.model.election.rules import Lease
from fencehold.runtime.store import Store

LOOK_EVERY_S = 0.1
SUCCESSOR_WITHIN_S = 2.0

EPILOG = """\b
Example:
  fencehold step-down nightly --wait 1m

Exit codes: 0 that term has ended (or nobody held the lease), 1 no such lease,
75 still held when the wait was over, 69 database unreachable, 78 bad configuration
"""


@dataclass(frozen=True)
class HandOver:
    """The result of `step-down`: the lease that was asked to step down, and the lease as it is now."""

    asked: Lease | None
    now: Lease
    waited_s: float
    ended: bool

    @property
    def successor(self) -> Lease | None:
        return self.now if self.ended and self.now.is_live else None


@click.command("step-down", epilog=EPILOG)
@click.argument("name")
@click.option("--wait", default="30s", metavar="DURATION", help="How long to wait for the hand-over.  [30s]")
@with_setup
def step_down(setup: Setup, name: str, wait: str) -> int:
    """Ask the holder of the lease NAME to step down, and wait until that term has ended.

    The holder is asked, not forced: a leader of this library gives the lease back at its next renewal, or at once on
    PostgreSQL. A holder that has died is replaced when its lease lapses, which this command sees as well.
    """
    wait_s = seconds(wait, "--wait")
    return _report(setup, name, with_store(setup, lambda store: _step_down(setup, store, name, wait_s)), wait_s)


async def _step_down(setup: Setup, store: Store, name: str, wait_s: float) -> HandOver:
    lease = await store.leases.read(name)
    if lease is None:
        raise no_such_lease(name)
    if not lease.is_live:
        return HandOver(None, lease, 0.0, ended=True)
    who = f"{lease.holder_id} (epoch {lease.epoch})"
    with _progress(setup, f"asked {who} to step down from {name!r}; waiting up to {wait_s:g} s"):
        return await _hand_over(store, lease, wait_s)


async def _hand_over(store: Store, asked: Lease, wait_s: float) -> HandOver:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    now, ended_s = asked, None
    while True:
        waited_s = loop.time() - began_s
        if (now.epoch, now.is_live) != (asked.epoch, True):
            ended_s = waited_s if ended_s is None else ended_s
            if now.is_live or waited_s >= min(wait_s, ended_s + SUCCESSOR_WITHIN_S):
                return HandOver(asked, now, ended_s, ended=True)
        elif waited_s >= wait_s:
            return HandOver(asked, now, waited_s, ended=False)
        elif not now.step_down_requested:
            # Asked again: the request is not written to a row that another session has locked.
            await store.leases.ask_step_down(asked.name, asked.epoch)
        await asyncio.sleep(LOOK_EVERY_S)
        now = await store.leases.read(asked.name) or now


def _report(setup: Setup, name: str, hand_over: HandOver, wait_s: float) -> int:
    asked, successor = hand_over.asked, hand_over.successor
    if not hand_over.ended:
        raise exit_codes.Refused(
            f"{name!r} is still held by {hand_over.now.holder_id} (epoch {hand_over.now.epoch}) after {wait_s:g} s.",
            hint="It was asked, and has not answered: wait longer, or end that process and let its lease lapse.",
            code="still_held",
            exit_code=exit_codes.NOT_ACQUIRED,
        )
    payload = {
        "name": name,
        "asked": lease_json(asked) if asked else None,
        "waited_s": round(hand_over.waited_s, 3),
        "successor": lease_json(successor) if successor else None,
    }
    if asked is None:
        setup.screen.result(payload, f"nobody holds {name!r}; its last holder was {hand_over.now.holder_id}")
        return exit_codes.OK
    took_over = f"{successor.holder_id} took over with epoch {successor.epoch}" if successor else ""
    ended = f"the term of {asked.holder_id} (epoch {asked.epoch}) ended after {hand_over.waited_s:.1f} s"
    setup.screen.result(payload, f"{ended}; {took_over or 'nobody has taken over yet'}")
    return exit_codes.OK


@contextmanager
def _progress(setup: Setup, text: str) -> Iterator[None]:
    """Show progress inside the block: a spinner on a terminal, one line elsewhere."""
    if setup.screen.is_json or not sys.stderr.isatty():
        setup.screen.say(text)
        yield
        return
    with Console(stderr=True).status(Text(clean(text))):
        yield
