"""`python -m twinshore.cli` is the `twinshore` command."""

from twinshore.cli import main

if __name__ == "__main__":
    main()
