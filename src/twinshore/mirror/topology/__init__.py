"""Several links together as they run: where a topic came from, and what really crosses.

`provenance` says of a topic by which clusters it came, by notes that mirrors leave on their targets (`target_notes`).
Notes are claims until something bears them out (`claims`, `descents`), and so mirrors with stores of their own know it
too. Each link's heart beats on its source and crosses like any topic (`heart`, `listening`); `picture` is drawn from
that. Of two links that go both ways under the same names, `homing` tells which carries a topic; what a switch said on
the clusters while the store was away is taken up first (`yielding`).
"""
