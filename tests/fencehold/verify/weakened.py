"""`fencehold` with other statements, in this process and in the contenders that `verify` starts.

    python -m tests.fencehold.verify.weakened FOLDER verify URL ...

The product has no switch for this: the statements are exchanged by patching the module that reads them.
"""

import sys
from importlib import resources
from pathlib import Path
from typing import Any

from fencehold.backends.sql import statements as sql_text

CONTENDER = "--contender"


class Exchanged:
    """Stands in for `importlib.resources` where statements are read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def files(self, package: str) -> Any:
        other = self._folder.joinpath(*package.split("."))
        return other if other.is_dir() else resources.files(package)


def main(folder: str, *arguments: str) -> None:
    sql_text.resources = Exchanged(Path(folder))  # type: ignore[assignment, attr-defined]
    if arguments == (CONTENDER,):
        from fencehold.verify import contender

        contender.main()
        return
    from fencehold.cli.app import execute
    from fencehold.verify import contender_processes as crew

    crew.CONTENDER[:] = ["-m", "tests.fencehold.verify.weakened", folder, CONTENDER]
    sys.exit(execute(list(arguments)))


if __name__ == "__main__":
    main(*sys.argv[1:])
