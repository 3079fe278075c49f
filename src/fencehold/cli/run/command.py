"""`fencehold run NAME -- CMD`: the command runs only while the lease is held.

The wrapper (this process) holds the lease and, at every renewal, sends the guardian the deadline until which the lease
may be trusted. The guardian ends the command and everything it started before that, whatever happens to the wrapper.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import click

from fencehold.cli import exit_codes
from fencehold.cli.run import guardian
from fencehold.cli.run.candidacy import Candidacy, Deadline, elected
from fencehold.cli.run.guarded import GUARDIAN_FROZEN, GUARDIAN_GONE, Guarded, Outcome
from fencehold.cli.setup import SILENT_FOR_S, Setup, with_setup
from fencehold.cli.signals import SignalForwarding
from fencehold.model import names
from fencehold.model.durations import seconds
from fencehold.model.election.settings import leader_settings
from fencehold.model.errors import FenceholdError, LeaseLost
from fencehold.runtime.election.keeper import RELEASED
from fencehold.runtime.election.leader import Leader
from fencehold.runtime.election.term import Term

GIVE_BACK_LIMIT_S = 3.0
LEAVE_LIMIT_S = 0.3  # without a lease: a lease that is granted within this time is still released
FOUND_BY = {
    guardian.CGROUP: "by their control group",
    guardian.CHILDREN: "in the kernel's lists of child processes",
    guardian.SCAN: "by a look through /proc",
    guardian.GROUP: "by their process group",
}
SHELL_SIGNS = set("|&;<>()$`*?~#=\\\"'")
FORM = "The form is: fencehold run NAME [OPTIONS] -- CMD..."

EPILOG = """\b
Examples:
  fencehold run nightly -- ./backup.sh --full
  fencehold run reports --no-wait -- make reports || [ $? = 75 ]
  fencehold run importer --lease 10s --wait 5m -- python import.py
\b
Exit codes: that of CMD (128 + n if it died of signal n), or
  69   the database cannot be reached (--no-wait, --wait); otherwise it is
       waited for
  75   the lease was not acquired: held by another (--no-wait, --wait)
  78   bad configuration: options, URL, refused login, missing tables, rights
  79   the lease was lost, or asked back: CMD was ended
  126  CMD cannot be executed      127  CMD was not found
  128+n  signal n came while waiting for the lease
\b
CMD finds FENCEHOLD_EPOCH (the fencing token), FENCEHOLD_LEASE and
FENCEHOLD_HOLDER in its environment. When the lease is lost, CMD and all
its descendants get SIGTERM if there is time, and SIGKILL before the lease
expires.
"""


@dataclass(frozen=True)
class Plan:
    """The options of one `fencehold run`; they are checked before anything is started or sent."""

    setup: Setup
    name: str
    path: str
    argv: tuple[str, ...]
    lease_s: float
    grace_s: float
    wait_s: float | None
    one_try: bool
    may_have_cgroup: bool
    holder_id: str | None


class DashedCommand(click.Command):
    """A click command that requires `--` before CMD: options before `--` are ours, options after it are CMD's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ours = args[: args.index("--")] if "--" in args else args
        if {"-h", "--help"} & set(ours):
            return super().parse_args(ctx, args)
        plain = [word for word in ours if not word.startswith("-")]
        if not plain:
            raise click.UsageError(f"No lease was named. {FORM}", ctx)
        if "--" not in args:
            missing = "There is no command." if len(plain) == 1 else "Put -- before the command."
            raise click.UsageError(f"{missing} {FORM}", ctx)
        rest = super().parse_args(ctx, args)
        if ctx.params["name"] not in ours:  # click took the first word of CMD for it
            raise click.UsageError(f"No lease was named. {FORM}", ctx)
        return rest


@click.command(cls=DashedCommand, epilog=EPILOG, options_metavar="[OPTIONS]")
@click.argument("name")
@click.argument("command", metavar="-- CMD...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--lease", default="30s", metavar="DURATION", help="How long the lease outlives the last renewal.  [30s]")
@click.option("--wait", default=None, metavar="DURATION", help="Give up (75 or 69) after this long.  [wait for ever]")
@click.option("--no-wait", is_flag=True, help="Try once (for 10 s at most), and give up (75 or 69).")
@click.option(
    "--grace",
    default="5s",
    metavar="DURATION",
    help="The time between SIGTERM and SIGKILL, if the lease lasts so long.  [5s]",
)
@click.option(
    "--holder-id", default=None, metavar="TEXT", help="The name of the holder, as others see it.  [host-pid-random]"
)
@click.option("--no-cgroup", is_flag=True, help="Make no control group for CMD, even where that is possible.")
@with_setup
def run(setup: Setup, name: str, command: tuple[str, ...], **given: Any) -> int:
    """Run CMD only while holding the lease NAME, and end it before the lease does.

    CMD runs in a session of its own, with this command's stdin, stdout and stderr. SIGTERM, SIGINT, SIGHUP, SIGQUIT,
    SIGUSR1, SIGUSR2 and SIGWINCH are passed on to it. Whatever it leaves behind is ended before the lease is released.
    """
    return asyncio.run(_supervise(_plan(setup, name, command, **given)))


def _plan(
    setup: Setup,
    name: str,
    command: Sequence[str],
    *,
    lease: str,
    wait: str | None,
    no_wait: bool,
    grace: str,
    holder_id: str | None,
    no_cgroup: bool,
) -> Plan:
    if wait is not None and no_wait:
        raise click.UsageError("--wait and --no-wait exclude each other.", click.get_current_context())
    settings = leader_settings(lease=seconds(lease, "--lease"))
    wait_s = seconds(wait, "--wait") if wait is not None else None
    path = executable(command[0], is_alone=len(command) == 1)
    plan = Plan(
        setup, names.lease_name(name), path, tuple(command), settings.lease_s, seconds(grace, "--grace"), wait_s,
        no_wait, not no_cgroup, None if holder_id is None else names.holder_id(holder_id),
    )  # fmt: skip
    setup.store()  # raises for a wrong URL or table name, before the guardian is started
    return plan


def executable(command: str, *, is_alone: bool = False) -> str:
    """Return the path of the program that CMD names.

    Raises Refused with a shell's exit code: 127 if there is no such file, 126 if it cannot be run. `is_alone`: no other
    words follow `command`. Blanks in it then may come from quotes around a whole command line, and the error says so.
    """
    path = shutil.which(command)
    if path is not None:
        return path
    places = [command] if os.sep in command else [os.path.join(p, command) for p in os.get_exec_path()]
    if command and any(os.path.exists(place) for place in places):
        raise _not_started(command, errno.EACCES)
    error = _not_started(command, errno.ENOENT)
    if is_alone and len(command.split()) > 1:
        error.hint = _without_quotes(command)
    raise error


def _without_quotes(line: str) -> str:
    if set(line) & SHELL_SIGNS:
        return f"For what only a shell understands: -- sh -c {shlex.quote(line)}"
    return f"Leave the quotes out: -- {line}"


def _not_started(command: str, number: int) -> exit_codes.Refused:
    missing = number == errno.ENOENT
    if missing and shutil.which(command):
        return exit_codes.Refused(
            f"{command!r} cannot be executed: the interpreter that its first line names was not found.",
            hint="Correct the line that begins with #!, or install the interpreter.",
            code="command_not_found",
            exit_code=exit_codes.NOT_FOUND,
        )
    return exit_codes.Refused(
        f"{command!r} was not found." if missing else f"{command!r} cannot be executed: {os.strerror(number)}.",
        hint="Check the spelling and PATH." if missing else "Check that it is a program and its permissions.",
        code="command_not_found" if missing else "command_not_executable",
        exit_code=exit_codes.NOT_FOUND if missing else exit_codes.NOT_EXECUTABLE,
    )


async def _supervise(plan: Plan) -> NoReturn:
    """Run the command under the lease until it is done or a signal ends the waiting. Then exit within a limit.

    The process exits even if a call to the database hangs.
    """
    signals = SignalForwarding()
    verdict: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    work = asyncio.create_task(_work(plan, signals, verdict))
    first: list[asyncio.Future[Any]] = [work, signals.interrupted, verdict]
    await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
    if not work.done() and not verdict.done():
        work.cancel()
    is_refused = verdict.done() and verdict.exception() is not None
    await asyncio.wait([work], timeout=LEAVE_LIMIT_S if is_refused else GIVE_BACK_LIMIT_S)
    if signals.interrupted.done() and not verdict.done():
        _leave(128 + signals.interrupted.result())
    _leave(verdict.result() if verdict.done() and not is_refused else _told(plan, verdict if is_refused else work))


def _told(plan: Plan, ended: asyncio.Future[Any]) -> int:
    error = ended.exception()
    if not isinstance(error, FenceholdError):
        raise error or AssertionError("the work ends with a verdict or an error")
    plan.setup.screen.error(error)
    return exit_codes.of_error(error)


def _leave(code: int) -> NoReturn:
    """Exit at once: a thread that still waits for a database must not delay the exit.

    The guardian has its orders already.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


async def _work(plan: Plan, signals: SignalForwarding, verdict: asyncio.Future[int]) -> None:
    candidacy = Candidacy(plan.setup.screen, plan.name, one_try=plan.one_try)
    guarded = Guarded(plan.path, plan.argv, may_have_cgroup=plan.may_have_cgroup)
    deadline = Deadline(plan.wait_s)
    store = plan.setup.patient_store(candidacy)
    silent = asyncio.get_running_loop().call_later(SILENT_FOR_S, plan.setup.say_silent) if plan.one_try else None
    try:
        async with candidacy.opening(deadline):
            await store.open(0 if plan.one_try else plan.wait_s)
        if silent is not None:
            silent.cancel()
        async with store, AsyncExitStack() as stack:
            leader = store.leader(plan.name, lease=plan.lease_s, holder_id=plan.holder_id)
            leader.settings = replace(leader.settings, acquire_limit_given_s=deadline.try_limit_s)
            stack.push_async_exit(leader)
            term = await _elected(plan, leader, candidacy, deadline, verdict)
            if signals.interrupted.done():
                return  # a signal came with the grant: release the lease, never start the command
            outcome = await _while_leading(plan, leader, term, guarded, signals, candidacy)
            verdict.set_result(_judged(plan, term, outcome))
    finally:
        guarded.close()


async def _elected(
    plan: Plan, leader: Leader, candidacy: Candidacy, deadline: Deadline, verdict: asyncio.Future[int]
) -> Term:
    """Wait for the term and return it.

    If the lease is not granted in time, put the error into `verdict` at once, because a call to the store may still
    hang, and raise it.
    """
    try:
        return await elected(leader, candidacy, deadline, one_try=plan.one_try)
    except FenceholdError as error:
        verdict.set_exception(error)
        raise


async def _while_leading(
    plan: Plan, leader: Leader, term: Term, guarded: Guarded, signals: SignalForwarding, candidacy: Candidacy
) -> Outcome:
    """Run the command under this term and return how it ended.

    Returns only when no process of the command is left: only then may the lease be released.
    """

    def renewed() -> None:
        asked_s = guardian.now_s()
        guarded.extend(asked_s, term.remaining_s)

    async with term:
        environment = {
            "FENCEHOLD_EPOCH": str(term.epoch), "FENCEHOLD_LEASE": term.name, "FENCEHOLD_HOLDER": term.holder_id,
        }  # fmt: skip
        guarded.start(environment, term.remaining_s, plan.lease_s, plan.grace_s)
        candidacy.on_renewed = renewed
        signals.forward_to(guarded.forward)
        try:
            outcome = await guarded.outcome()
        except asyncio.CancelledError:
            # The term is over. Stopping the leader now keeps it from seeking another one.
            candidacy.stopping = asyncio.create_task(leader.shutdown())
            outcome = await guarded.end(plan.grace_s if term.ended_because == RELEASED else 0.0)
    return outcome


def _judged(plan: Plan, term: Term, outcome: Outcome) -> int:
    if outcome.survivors:
        pids = ", ".join(map(str, outcome.survivors))
        plan.setup.screen.say(f"could not end process {pids}: not ours to signal; it runs on without the lease")
    if outcome.failed_errno is not None:
        error: FenceholdError = _not_started(plan.argv[0], outcome.failed_errno)
    elif outcome.because == guardian.EXITED and outcome.exit_code is not None:
        return outcome.exit_code
    else:
        error = LeaseLost(
            f"Lease {plan.name!r} epoch {term.epoch}: {_why(term, outcome)}; {_ended(outcome)}.",
            hint="Run it again when the lease is free; what it had begun may be half done.",
            name=plan.name,
            epoch=term.epoch,
        )
    plan.setup.screen.error(error, ended_by=outcome.ended_by or None)
    return exit_codes.of_error(error)


def _ended(outcome: Outcome) -> str:
    """Return a text that says what was ended, and how its processes were found.

    docs/commands.md has what each way of finding them promises.
    """
    what = "all of the command but the processes named above" if outcome.survivors else "the command"
    found = f" (its processes were found {FOUND_BY[outcome.ended_by]})" if outcome.ended_by else ""
    return f"{what} was ended{found}"


def _why(term: Term, outcome: Outcome) -> str:
    known = {
        guardian.DEADLINE: "it was not renewed in time", GUARDIAN_GONE: "the guardian process died",
        GUARDIAN_FROZEN: "the guardian process did not answer",
    }  # fmt: skip
    ended = "it was asked back" if term.ended_because == RELEASED else term.ended_because or "it is over"
    return known.get(outcome.because, ended.replace("_", " "))
