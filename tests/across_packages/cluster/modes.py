"""How the cluster of a test replicates: asynchronously unless it says otherwise."""

import pytest

SYNCHRONOUS = pytest.mark.parametrize("cluster", ["synchronous"], indirect=True)
EITHER = pytest.mark.parametrize("cluster", ["asynchronous", "synchronous"], indirect=True)
