"""The harness that docs/adding-a-backend.md leaves to the author of a backend: here it is that of the memory store."""

from pathlib import Path

from tests.fencehold.testing.conformance.memory_harness import MemoryHarness


class MyHarness(MemoryHarness):
    def __init__(self, folder: Path) -> None:
        super().__init__()
