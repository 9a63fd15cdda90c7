"""The command line: verbs by their subject, a file each. What a verb stands on is imported when the verb runs, so
`twinshore --help` is quick.

Errors raised on purpose end as one sentence and, where there is one, a line with the remedy; exit code 2.
"""

from twinshore.cli.early import end_when_interrupted


def main() -> None:
    """Entry point of the `twinshore` command. Ctrl-C is heard before anything large is loaded."""
    end_when_interrupted()
    from twinshore.cli.entry import main as begin

    begin()
