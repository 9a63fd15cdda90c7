"""The loop that carries one lane: sockets, threads and a clock around the pure decisions of `lane`.

`tide` is what runs inside Spark; it begins `loop`, which asks `lane` and moves bytes over `source_line`, `target_line`
and `outbox`. Slow errands go to `scout` (`twin_look`, `probing`), markers that may not be written directly go as closed
transactions (`units`), and `desk_line` is the pump's end of its talk with the driver.
"""
