"""`submission-manager gateway`: the fake sms and push gateway."""

from __future__ import annotations

import asyncio
import sys

import click

from fencehold import ConfigurationError, command
from fencehold.command import OK, Stop, StopBy
from fencehold.service import seconds
from submission_manager.fake_gateway import Behaviour, FakeGateway
from submission_manager.http.server import Listening

REQUEST_TIMEOUT_S = 10.0
DRAIN_S = 1.0

EPILOG = """\b
What a message says decides what becomes of it: a recipient that is no number is rejected with invalid_recipient, a
blank text with invalid_message, a text with FAIL with provider_failure; HANG is never answered, GARBAGE is answered
with HTML, ERROR with 500, LONG with an over-long reason, SILENT with a rejection without a reason. A push token with
UNREGISTERED is rejected with unregistered_token. All else is accepted.
\b
GET /calls tells how often each Idempotency-Key and each intent was seen.
"""


@click.command(epilog=EPILOG)
@click.option("--host", default="127.0.0.1", show_default=True, help="Serve on this address.")
@click.option("--port", type=click.IntRange(0, 65535), default=9090, show_default=True, help="0 takes a free one.")
@click.option("--delay-min", default=None, metavar="DURATION", help="The shortest random delay before an answer.  [0]")
@click.option("--delay-max", default=None, metavar="DURATION", help="The longest random delay.  [0]")
@click.option("--hang", "hang_share", type=click.FloatRange(0, 1), default=0.0, help="Share of calls never answered.")
@click.option("--garbage", "garbage_share", type=click.FloatRange(0, 1), default=0.0, help="Share answered with HTML.")
@click.option("--error", "error_share", type=click.FloatRange(0, 1), default=0.0, help="Share answered with 500.")
@click.option("--seed", type=int, default=None, help="Makes the random choices repeatable.")
@click.option("--record", metavar="FILE", default=None, help="Append every call as a JSON line, before it is answered.")
def gateway(
    host: str, port: int, delay_min: str | None, delay_max: str | None, record: str | None, **shares: float | int | None
) -> int:
    """A fake gateway, to try the service with: POST /sms/send and /push/send, GET /calls and /healthz."""
    least_s = _delay(delay_min, "--delay-min")
    most_s = max(least_s, _delay(delay_max, "--delay-max"))
    behaviour = Behaviour(least_s, most_s, **shares)  # type: ignore[arg-type]
    app = _gateway(behaviour, record)
    return asyncio.run(command.serve(lambda stop_by: _serve(app, host, port, stop_by)))


def _delay(given: str | None, what: str) -> float:
    return 0.0 if given in (None, "0", "0s") else seconds(str(given), what)


def _gateway(behaviour: Behaviour, record: str | None) -> FakeGateway:
    try:
        return FakeGateway(behaviour, record)
    except OSError as error:
        raise ConfigurationError(f"{record} cannot be written: {error.strerror or error}.", code="bad_file") from None


async def _serve(app: FakeGateway, host: str, port: int, stop_by: StopBy) -> int:
    listening = Listening(app, host, port, request_timeout_s=REQUEST_TIMEOUT_S, drain_timeout_s=DRAIN_S)
    is_stopping = asyncio.Event()
    await listening.start()
    stop_by(Stop(is_stopping.set, within_s=DRAIN_S, spare_s=DRAIN_S * 3))
    click.echo(f"serving on http://{host}:{listening.port}")
    sys.stdout.flush()
    try:
        await is_stopping.wait()
    finally:
        await listening.stop()
        app.calls.close()
    return OK
