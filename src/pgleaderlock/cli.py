"""The `pgleaderlock` command. What it needs comes with two extras, and a missing one is said in a sentence."""

from __future__ import annotations

import sys
from collections.abc import Callable

BAD_CONFIGURATION = 78
#: What is not there with the package itself.
OF_EXTRAS = ("click", "loguru", "psycopg")

main: Callable[[], object]


def _without(missing: str) -> Callable[[], object]:
    """The command where this is not installed."""

    def end() -> None:
        sys.stderr.write(f"pgleaderlock: {missing} is not installed; pip install 'fencehold[cli,postgres]'\n")
        sys.exit(BAD_CONFIGURATION)

    return end


try:
    from pgleaderlock.command import main
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in OF_EXTRAS:
        raise
    main = _without(error.name or "")
