"""Hypothesis repeats itself here: the same examples on every run and every machine, no time limits, no files."""

from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None, database=None, max_examples=150)
settings.load_profile("fixed")
