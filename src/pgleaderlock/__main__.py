"""`python -m pgleaderlock` is the `pgleaderlock` command."""

from pgleaderlock.cli import main

if __name__ == "__main__":
    main()
