"""The command line: a module for each subject. A verb opens settings and store, calls an operation, and prints.

Operations are imported when a verb runs, so that `twinshore --help` is quick. An expected error is one sentence with a
remedy, and exit code 2.
"""
