"""The entry point of the `pgleaderlock` command.

It needs two extra packages; if one is missing, it says so and ends.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

BAD_CONFIGURATION = 78
#: Modules that only the extras install.
OF_EXTRAS = ("click", "loguru", "psycopg")

main: Callable[[], object]


def _without(missing: str) -> Callable[[], object]:
    """Return a command that prints that the module `missing` is not installed, and exits with 78."""

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
