"""The `fencehold` command. What it needs beyond the standard library comes with the extra `cli`."""

from __future__ import annotations

import sys

BAD_CONFIGURATION = 78
INTERRUPTED = 130


def main() -> None:
    """Run the command. Exits with a documented exit code, never with a traceback."""
    try:
        from fencehold.cli.app import execute
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("click", "rich"):
            raise
        print("fencehold: the command is not installed; pip install 'fencehold[cli]'", file=sys.stderr)
        sys.exit(BAD_CONFIGURATION)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    sys.exit(execute(sys.argv[1:]))
