"""The loop that carries one lane: sockets, threads and a clock, as the pure decisions of `core` want them.

`tide` is what runs inside Spark, `raft` where small lanes share a task; each begins `loop`, which tells `core`
what comes and carries out what it commands over `lines`, to brokers and to the driver's desk. Slow errands go to
`scout` (`twin_look`, `probing`), markers that may not be written directly go as closed transactions (`units`).
"""
