"""`python -m fencehold.testing.simulation`."""

import sys

from fencehold.testing.simulation import main

sys.exit(main(sys.argv[1:]))
