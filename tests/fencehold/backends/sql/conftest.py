"""`opened`: an open store with an outbox, and what it tells."""

from tests.fencehold.runtime.outbox.conftest import opened  # noqa: F401 - the same store
