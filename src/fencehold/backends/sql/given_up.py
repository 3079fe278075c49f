"""The error after a statement of a fenced transaction whose caller stopped waiting, and that can no longer be
cancelled.
"""

from __future__ import annotations

from fencehold.model.errors import ConfigurationError


def given_up() -> ConfigurationError:
    return ConfigurationError(
        "A statement of this transaction was given up before its answer came; nothing of it is committed.",
        hint="Let the timeout, or the cancellation, leave the block.",
        code="statement_given_up",
    )
