"""Several links together: which of them could loop or collide, where a topic came from, what really runs.

`rules` judges links before anything is touched, by the names their filters can let through (`names`, `patterns`).
`provenance` says of a topic by which clusters it came; a twin's origin stands in a topic of its target (`journal`), so
that mirrors with stores of their own know it too. `heartbeats` cross like any topic; `picture` is drawn from them.
"""
