"""`python -m fencehold` is the `fencehold` command."""

from fencehold.cli import main

if __name__ == "__main__":
    main()
