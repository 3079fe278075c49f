"""Converts every error of a command to an error with a code: the same for all commands of this distribution."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import click

from fencehold.cli import exit_codes
from fencehold.cli.screen import clean
from fencehold.model.errors import ConfigurationError, FenceholdError


def steady_streams() -> None:
    """Replace stdout and stderr if the caller closed them (>&-): output is then discarded, and does not fail.

    Characters that a stream cannot encode are written as escapes.
    """
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for the life of the process
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def is_bare(error: Exception) -> TypeGuard[click.UsageError]:
    """Return whether a group was called without a command: the error's message is then the group's help.

    This compares the class name, because older versions of click do not have this error.
    """
    return type(error).__name__ == "NoArgsIsHelpError"


def _parsed_for(error: click.UsageError) -> click.Context | None:
    """Return the command whose options were being read when the error came; None if that is not known.

    click does not note the command in the error if an option lacks its value.
    """
    contexts = [frame.f_locals.get("ctx") for frame, _ in traceback.walk_tb(error.__traceback__)]
    return next((one for one in reversed(contexts) if isinstance(one, click.Context)), None)


def the_hint(code: str, hint: str) -> str:
    return hint


def execute(
    command: click.Command,
    arguments: Sequence[str],
    program: str,
    hint_for: Callable[[str, str], str] = the_hint,
) -> int:
    """Run the command line and return the exit code, never with a traceback; 0 if the command returns no number.

    An error is printed as one message with code and hint on stderr, without passwords. `hint_for` gets the error's code
    and hint and returns the hint to print: for a program whose own commands help where an error names those of
    `fencehold`.
    """
    return executed(command, arguments, program, lambda error: _told(as_ours(error, program), program, hint_for))


def executed(command: click.Command, arguments: Sequence[str], program: str, failed: Callable[[Exception], int]) -> int:
    """Run the command line and return the exit code; `failed` prints an error and returns its exit code."""
    steady_streams()
    try:
        answer: Any = command.main(args=list(arguments), prog_name=program, standalone_mode=False)
        return answer if isinstance(answer, int) else exit_codes.OK
    except (KeyboardInterrupt, click.Abort):
        return exit_codes.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last place that can print it as a message
        return failed(error)


def _told(error: FenceholdError, program: str, hint_for: Callable[[str, str], str]) -> int:
    click.echo(f"{program}: [{error.code}] {clean(error.message)}", err=True)
    if hint := hint_for(error.code, error.hint):
        click.echo(f"  hint: {clean(hint)}", err=True)
    return exit_codes.of_error(error)


def as_ours(error: Exception, program: str) -> FenceholdError:
    match error:
        case FenceholdError():
            return error
        case click.UsageError():
            context = error.ctx or _parsed_for(error)
            where = context.command_path if context else program
            message = "No command was given." if is_bare(error) else error.format_message()
            return ConfigurationError(message, hint=f"See `{where} --help`.", code="bad_usage")
        case click.ClickException():
            return ConfigurationError(error.format_message(), code="bad_usage")
        case _:
            if os.environ.get("FENCEHOLD_DEBUG"):
                traceback.print_exception(error)
            return exit_codes.Refused(
                f"{type(error).__name__}: {error}",
                hint=f"This is a fault in {program} itself; FENCEHOLD_DEBUG=1 shows where.",
                code="internal_error",
                exit_code=exit_codes.INTERNAL,
            )
