"""`fencehold items break ID`: ends a lease that its holder does not release; asks first, and logs who did it."""

from __future__ import annotations

import getpass
import socket
import sys

import click

from fencehold.cli import exit_codes
from fencehold.cli.items.words import held, item_json, kind_option, the_item
from fencehold.cli.screen import clean, log_to_stderr
from fencehold.cli.setup import Setup, with_setup, with_store
from fencehold.model.errors import ConfigurationError
from fencehold.runtime.items.item import ItemView
from fencehold.telemetry.logs import LogSink

EPILOG = """\b
Examples:
  fencehold items break n-7
  fencehold items break n-7 --kind negotiation --yes -o json

Exit codes: 0 it is free (also when nobody held it), 1 no such item or not confirmed,
75 another lease had begun meanwhile, 69 database unreachable, 78 bad configuration
"""


@click.command("break", epilog=EPILOG)
@click.argument("item_id", metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask.")
@kind_option
@with_setup
def break_(setup: Setup, item_id: str, yes: bool, kind: str | None) -> int:
    """Break the lease on an item, whoever holds it.

    Exactly the lease that is shown is ended: one that began meanwhile is not. Its holder is refused at its next write
    or renewal, and stops; what it was doing outside the database may still take effect. An event item_lease_broken goes
    to the log, with who did it.
    """
    seen = with_store(setup, lambda store: the_item(store, item_id, kind))
    if seen.holder_id is None:
        setup.screen.result(
            {"item": item_json(seen, with_document=False), "broken": False}, f"nobody holds {item_id!r}"
        )
        return exit_codes.OK
    if not yes and not _confirmed(seen):
        setup.screen.say("left as it is")
        return exit_codes.NO
    log_to_stderr(as_json=setup.screen.is_json)
    by = f"{getpass.getuser()}@{socket.gethostname()}"
    with_store(setup, lambda store: store.items(seen.kind).break_seen(seen, by=by), LogSink())
    payload = {"item": item_json(seen, with_document=False), "broken": True}
    setup.screen.result(payload, f"the lease of {seen.holder_id} on {item_id!r} (token {seen.token}) is broken")
    return exit_codes.OK


def _confirmed(seen: ItemView) -> bool:
    if not sys.stdin.isatty():
        raise ConfigurationError(
            "Breaking a lease asks first, and nobody is there to answer.", hint="Give --yes.", code="not_confirmed"
        )
    question = f"Item {clean(seen.id)} ({clean(seen.kind)}) is {clean(held(seen))}. Break this lease?"
    return click.confirm(question, err=True)
