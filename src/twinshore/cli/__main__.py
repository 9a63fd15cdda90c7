"""`python -m twinshore.cli` is the `twinshore` command."""

from twinshore.service.loading import without_test_tools
from twinshore.service.signals import end_when_interrupted


def main() -> None:
    """Entry point of the `twinshore` command. Ctrl-C is heard before anything large is loaded."""
    end_when_interrupted()
    without_test_tools()
    from twinshore.cli.entry import main as begin

    begin()


if __name__ == "__main__":
    main()
