"""Twinshore beside what a user would pick instead: both on the same clusters, in one run, by turns.

`python -m bench.mirror` puts it beside MirrorMaker 2, `python -m bench.wan` puts distance between the sites. Each ends
with one flat line of JSON and writes its own part of docs/benchmarks.md; no figure there is typed by hand.
"""
