"""What a show says of random faults under load, whichever copies were to stay identical."""

from __future__ import annotations

from bench.kit.claims import Finding
from testkit.faults import FaultReport

# Of the rate. The source's own deaths take from it, and so does a small machine that carries everything.
RATE_KEPT = 0.8


def finding(found: FaultReport, name: str, rate: float) -> Finding:
    """`name`: before each number; `rate`: the records a second that were asked for."""
    each = f" to each of {found.targets}" if found.targets > 1 else ""
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(found.kinds.items()))
    figure = (
        f"{found.faults} faults, seed {found.seed}: {found.records} records{each}, {found.lost} lost,"
        f" {found.duplicated} duplicated, {found.reordered} reordered,"
        f" every offset {'equal' if found.identical else 'NOT equal'}, {found.incidents} incidents;"
        f" {found.records_s:.0f} records/s; {kinds}"
    )
    spoiled = found.lost + found.duplicated + found.reordered
    numbers = (
        (f"{name}_count", found.faults),
        (f"{name}_records", found.records),
        (f"{name}_records_s", found.records_s),
        (f"{name}_spoiled", spoiled),
    )
    loaded = found.records_s >= RATE_KEPT * rate
    return Finding(figure, found.identical and spoiled == 0 and found.incidents == 0 and loaded, numbers)
