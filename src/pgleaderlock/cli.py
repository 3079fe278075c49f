"""The `pgleaderlock` command. It needs two extras; if one is missing, it prints a sentence and ends."""

from __future__ import annotations

import sys
from collections.abc import Callable

BAD_CONFIGURATION = 78
#: Modules that only the extras install.
OF_EXTRAS = ("click", "loguru", "psycopg")

main: Callable[[], object]


def _without(missing: str) -> Callable[[], object]:
    """The command to use if the module `missing` is not installed: prints that, and exits with 78."""

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
