"""`python -m twinshore.cli` is the `twinshore` command."""

from twinshore.cli import main

main()
