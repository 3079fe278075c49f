"""The `submission-manager` command. What it needs beyond the standard library comes with the extras."""

from __future__ import annotations

import sys

from submission_manager.cli.early_stop import EARLY_STOP

BAD_CONFIGURATION = 78
INTERRUPTED = 130
EXTRAS = ("click", "rich", "starlette", "uvicorn", "httpx", "msgspec", "prometheus_client")


def main() -> None:
    """Run the command. Exits with a documented exit code, never with a traceback."""
    if sys.argv[1:2] == ["serve"]:
        EARLY_STOP.listen()
    try:
        from submission_manager.cli.app import execute
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRAS:
            raise
        print("submission-manager: it is not installed; pip install 'fencehold[cli,service]'", file=sys.stderr)
        sys.exit(BAD_CONFIGURATION)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    sys.exit(execute(sys.argv[1:]))
