"""Runs `python -m fencehold.testing.simulation`: the command line of the simulation, see `sweep.main`."""

import sys

from fencehold.testing.simulation import main

sys.exit(main(sys.argv[1:]))
