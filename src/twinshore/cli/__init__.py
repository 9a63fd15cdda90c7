"""One file per verb; each is imported only when it is asked for, so `twinshore --help` is quick.

Errors raised on purpose end as one sentence and, where there is one, a line with the remedy; exit code 2.
"""

from twinshore.cli.entry import app, main

__all__ = ["app", "main"]
