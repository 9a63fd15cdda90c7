"""`python -m twinshore.cli` is the `twinshore` command."""

from __future__ import annotations

from twinshore.runtime.process import end_when_interrupted, without_test_tools


def main() -> None:
    """Entry point of the `twinshore` command. Ctrl-C is heard before anything large is loaded."""
    end_when_interrupted()
    without_test_tools()
    from twinshore.cli.app import main as begin

    begin()


if __name__ == "__main__":
    main()
