"""The backend of the examples and the conformance suite: leases, and nothing else."""

from pathlib import Path

import pytest

from fencehold.testing import conformance
from fencehold.testing.harness import Harness
from tests.examples.json_file_harness import JsonFileHarness


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return JsonFileHarness(tmp_path / "leases.json")


class TestJsonFile(conformance.Suite, harness=JsonFileHarness): ...
