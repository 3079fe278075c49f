"""`submission-manager check`: checks whether a registry file can be used by `serve`."""

from __future__ import annotations

import os

import click

from fencehold.command import BAD_CONFIGURATION, OK, clean
from submission_manager.registry import registry as registries
from submission_manager.settings import BY_NAME, settings

_REGISTRY, _RETRY_DELAY = BY_NAME["registry"], BY_NAME["retry_delay"]
OF_THE_FILE = "it "  # a problem without a place in the file begins so

EPILOG = """\b
Example:
  submission-manager check --registry registry.json && echo fit to be served
\b
Exit codes: 0 ok, 78 problems
"""


@click.command(epilog=EPILOG)
@click.option(
    "--registry", envvar=_REGISTRY.variable, default=_REGISTRY.default, metavar="FILE", show_default=True,
    help=f"{_REGISTRY.meaning} Also {_REGISTRY.variable}.",
)  # fmt: skip
@click.option(
    "--retry-delay", envvar=_RETRY_DELAY.variable, default=_RETRY_DELAY.default, metavar="DURATION", show_default=True,
    help=f"The --retry-delay of `serve`, compared with each target's deadline. Also {_RETRY_DELAY.variable}.",
)  # fmt: skip
def check(registry: str, retry_delay: str) -> int:
    """Print `ok`, or every problem of the registry file, one per line, each with its place (exit code 78).

    Prints a warning on stderr for each environment variable that the file names and that is not set here (it must be
    set only where the registry is served), and for targets that the retry delay leaves no time for a second attempt.
    """
    try:
        found = registries.load(registry)
    except registries.BadRegistry as error:
        for problem in error.problems:
            place = f"{registry}: " if problem.startswith(OF_THE_FILE) else ""
            click.echo(clean(place + problem).replace("\n", " "))
        return BAD_CONFIGURATION
    never_retried = found.never_retried(settings({"retry_delay": retry_delay}).retry_delay_s)
    count = len(found.contracts)
    click.echo(f"ok: {count} target{'s' if count != 1 else ''}")
    for variable in found.variables_missing(os.environ):
        click.echo(f"warning: the variable {variable} is not set here; webhooks that need it would fail", err=True)
    for target in never_retried:
        place = f"{target}: maxAcceptanceSeconds is not above --retry-delay ({retry_delay})"
        click.echo(clean(f"warning: {place}; it gets one attempt and no other"), err=True)
    return OK
