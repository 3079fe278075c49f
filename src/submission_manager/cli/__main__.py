"""`python -m submission_manager.cli`."""

from submission_manager.cli import main

main()
