"""The command line: its commands, and how every error is printed."""

from __future__ import annotations

from collections.abc import Sequence

import click

import fencehold
from fencehold import command
from submission_manager.cli import check, demo, gateway, serve, sql
from submission_manager.own_words import own_hint

PROGRAM = "submission-manager"

EPILOG = """\b
Exit codes, the same for every command:
  0    done, or stopped in order
  1    the answer is no (attempts were cut, it did not end in time; the demo found something)
  69   the database cannot be reached, takes no writes, or gave no answer
  70   a fault of the program itself; FENCEHOLD_DEBUG=1 shows where
  78   a mistake: settings, registry, URL, port, refused login, missing driver, database, tables or rights
  130  interrupted by Ctrl-C, or stopped at once by a second signal
\b
Example:
  echo '{"targets": [{"submissionTarget": "sms.realtime", "gatewayType": "sms", "policy": "one_shot",
         "gatewayUrl": "http://127.0.0.1:9090", "terminalOutcomes": ["invalid_recipient"]}]}' > registry.json
  submission-manager gateway --port 9090 &
  submission-manager serve --registry registry.json --port 8080 &
  curl -d '{"intentId":"a","submissionTarget":"sms.realtime","payload":
           {"referenceId":"a","to":"4912345","message":"hello"}}' 'localhost:8080/v1/intents?waitSeconds=5'
"""


@click.group(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(fencehold.__version__, prog_name=PROGRAM)
def cli() -> None:
    """Submits SMS and push messages through one-shot gateways, by the policy of their target.

    Any number of instances share a database and take intents over HTTP; exactly one of them, the holder of a lease,
    executes them. Every write of an executor is fenced: one that lost its lease writes nothing.
    """


for _command in (serve.serve, check.check, sql.sql, gateway.gateway, demo.demo):
    cli.add_command(_command)


def execute(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit code.

    An error is printed on stderr as one message with code and hint.
    """
    return command.execute(cli, arguments, PROGRAM, own_hint)
