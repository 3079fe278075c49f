"""Whether a control group (cgroup v2) can be made here: the machine or its container lets us, or no package helps."""

import pytest

from fencehold.cli.run.guardian import Cgroup
from fencehold.cli.run.guardian.cgroup import is_ours_to_divide
from tests.conftest import not_here
from tests.servers.programs import Missing

NAME = "a control group"


def must_be_makeable(config: pytest.Config) -> None:
    """Else the test is not run, and the last lines say so."""
    try:
        Cgroup.make().remove()
    except OSError as error:
        not_here(config, Missing(NAME, f"none can be made here: {error}"))


def must_be_used(config: pytest.Config) -> None:
    """By `fencehold run`, which leaves alone what systemd manages."""
    must_be_makeable(config)
    if not is_ours_to_divide():
        not_here(config, Missing(NAME, "systemd manages ours and has not delegated it"))
