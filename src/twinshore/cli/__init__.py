"""The command line: a file for each subject, with its verbs. A verb opens the settings and the store, asks an operation
of another room, and shows what comes back. Operations are imported when a verb runs, so `twinshore --help` is quick.

Errors raised on purpose end as one sentence and, where there is one, a line with the remedy; exit code 2.
"""

from twinshore.service.loading import without_test_tools
from twinshore.service.signals import end_when_interrupted


def main() -> None:
    """Entry point of the `twinshore` command. Ctrl-C is heard before anything large is loaded."""
    end_when_interrupted()
    without_test_tools()
    from twinshore.cli.entry import main as begin

    begin()
