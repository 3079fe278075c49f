"""All errors that the library raises on purpose. Each has a code, and says what happened and what to do."""

from __future__ import annotations

import datetime as dt
import re


class FenceholdError(Exception):
    """Base of all errors; `.code` is stable and meant for programs, `.hint` says what to do."""

    code = "fencehold_error"

    def __init__(self, message: str, *, hint: str = "", code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        tail = f" {self.hint}" if self.hint else ""
        return f"[{self.code}] {self.message}{tail}"


class LeaseLost(FenceholdError):
    """The lease is not ours any more, or cannot be proven to be ours; nothing was written under it.

    A leader's term sets `name` and `epoch`; an item's lease sets `item_id` and `token`.
    """

    code = "lease_lost"

    def __init__(
        self, message: str, *, hint: str = "", name: str = "", epoch: int = 0, item_id: str = "", token: int = 0
    ) -> None:
        super().__init__(message, hint=hint or "Stop acting for this term and wait for the next one.")
        self.name = name
        self.epoch = epoch
        self.item_id = item_id
        self.token = token


class AlreadyLeased(FenceholdError):
    """Somebody else holds a live lease; nothing was changed."""

    code = "already_leased"

    def __init__(self, message: str, *, holder_id: str, expires_at: dt.datetime | None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.holder_id = holder_id
        self.expires_at = expires_at


class NoSuchItem(FenceholdError, LookupError):
    """No item of this id and kind exists, so there was nothing to lease."""

    code = "no_such_item"


class Unavailable(FenceholdError):
    """The store did not execute the request: nothing was changed."""

    code = "unavailable"


class Uncertain(FenceholdError):
    """The request was sent and no answer came, so it may or may not have been executed."""

    code = "uncertain"


class WorkerStuck(FenceholdError):
    """A worker of an outbox gave up (`give_up_after`): it can handle no event until its process is restarted."""

    code = "worker_stuck"


class ConfigurationError(FenceholdError, ValueError):
    """What was asked for cannot work, however long one waits; nothing was written."""

    code = "bad_configuration"


# Starts at the slashes: a pattern that starts at the scheme would read every long word of a text once per letter.
# A password may hold blanks, unless what follows the colon is a port.
_URL_PASSWORD = re.compile(
    r"(?P<head>://[^\s:/]{0,4096}+:)(?:(?:[^\s@]{0,4096}+@)+|(?!\d+(?:[/?#,\s]|$))[^\s@][^\n@]{0,200}+@)"
)
# A quoted value without a closing quote was cut off: then the rest of its line is the value. Where semicolons separate
# the pairs (ODBC, Cosmos DB) a value may hold blanks, elsewhere (libpq) semicolons.
_KEYWORD_PASSWORD = re.compile(
    r"""
    (?P<head>(?P<listed>;\s*)?(?:password|passwd|pwd|accountkey|sharedaccesskey)\s*=\s*)
    (?:
        \{(?:[^}\n]|\}\})*+\}?                                          # ODBC: }} is one }
      | \\*'(?:[^'\\\n]|\\.|'')*+'?                                     # libpq: \' is one '; ADO: '' is
      | \\*"(?:[^"\\\n]|\\.|"")*+"?
      | (?(listed)(?:[^;\n'"]|['"](?=[^\s,;:)\]}'"]))+|(?:\\.|[^\s;&\\]|[;&](?!\s|$|\w+\s*=))+)
    )
    """,
    re.IGNORECASE | re.VERBOSE,
)


def redact(text: str) -> str:
    """Return `text` with every password in a URL or connection string replaced by `***`, quoted or not."""
    text = _URL_PASSWORD.sub(r"\g<head>***@", text)
    return _KEYWORD_PASSWORD.sub(r"\g<head>***", text)
