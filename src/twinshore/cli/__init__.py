"""The command line: a file for each subject, with its verbs. A verb opens the settings and the store, asks an operation
of another room, and shows what comes back. Operations are imported when a verb runs, so `twinshore --help` is quick.

Errors raised on purpose end as one sentence and, where there is one, a line with the remedy; exit code 2.
"""
