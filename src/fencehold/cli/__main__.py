"""`python -m fencehold.cli` is the `fencehold` command."""

from fencehold.cli import main

main()
