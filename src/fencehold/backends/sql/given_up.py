"""The error for a fenced transaction after its caller stopped waiting for a statement that cannot be undone."""

from __future__ import annotations

from fencehold.model.errors import ConfigurationError


def given_up() -> ConfigurationError:
    return ConfigurationError(
        "A statement of this transaction was given up before its answer came; nothing of it is committed.",
        hint="Let the timeout, or the cancellation, leave the block.",
        code="statement_given_up",
    )
