"""What compares and shows: `kit` is what both need, `measure` puts figures beside each other, `show` tries claims.

`measure` has Twinshore beside what a user would pick instead, both on the same clusters, in one run, by turns. Each
ends with one flat line of JSON; the modules `mirror`, `wan` and `proxy` of it write their parts of docs/benchmarks.md,
`show` writes docs/evidence, and no figure is typed by hand. Nothing here imports a test, and nothing in `tests` imports
this: what both set up is in `testkit`. The tests of what is here are in `bench/tests`.
"""
