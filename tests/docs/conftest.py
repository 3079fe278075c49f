"""`cli`: the commands in this process, for the page that shows them."""

from tests.fencehold.cli.conftest import cli, cli_text  # noqa: F401 - the same commands
