"""What is read again next, what comes of that, and how long a pass over everything takes. Pure.

Records that were proven lie on disks, and disks and elections change them. So what was read longest ago is read next,
for ever, within a budget of bytes per second.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from twinshore.fleet import Cluster
from twinshore.proof.borders import PartitionLook
from twinshore.proof.cursors import narrowed, read_again
from twinshore.proof.planning import Wishes, differing, longest, stretch_of
from twinshore.proof.values import Proven, Stretch, Way
from twinshore.store.proof_values import ProofRow

STRETCHES_MAX = 64
# How much an offset may take on both sides where nobody knows.
OFFSET_BYTES = 2_000


class Errand(NamedTuple):
    """A part of what was proven, to be read again; `read_ms`: since when each part of its proof was read."""

    look: PartitionLook
    stretch: Stretch
    read_ms: int


def errands(
    looks: Iterable[PartitionLook],
    clusters: tuple[Cluster, Cluster],
    wishes: Wishes,
    *,
    size_max: float,
    before_ms: int,
    skip: Collection[tuple[str, int]] = (),
) -> list[Errand]:
    """Those of one link that come next, the longest unread first; `size_max` bytes of them. Nothing that was read whole
    since `before_ms`; `skip` are parts that just failed, by partition and offset."""
    waiting = [
        (row, look)
        for look in looks
        if (row := look.resumes) is not None
        and row.to_offset > row.from_offset
        and row.read_ms < before_ms
        and (f"{look.link} {look.named}", _next(row)) not in skip
    ]
    found: list[Errand] = []
    for row, look in sorted(waiting, key=lambda one: (one[0].read_ms, one[0].topic, one[0].partition)):
        stretch, size = _stretch(look, row, clusters, wishes, size_max)
        found.append(Errand(look, stretch, row.read_ms))
        size_max -= size
        if size_max <= 0 or len(found) == STRETCHES_MAX:
            break
    return found


def _next(row: ProofRow) -> int:
    return row.again_offset if row.again_offset >= 0 else row.from_offset


def _stretch(
    look: PartitionLook, row: ProofRow, clusters: tuple[Cluster, Cluster], wishes: Wishes, size_max: float
) -> tuple[Stretch, float]:
    """What the pass reads next, as large as may be, and about how large."""
    at, end = _next(row), row.again_end if row.again_offset >= 0 else row.to_offset
    per_offset = row.size / (row.to_offset - row.from_offset) if row.size else OFFSET_BYTES
    if look.way is Way.COMPACTED:
        # Which record of a key is the latest is known only at the end.
        whole = stretch_of(look, clusters, wishes, at, max(look.end, row.to_offset))
        return replace(whole, digest=False), per_offset * (end - at)
    count = min(end - at, longest(look, wishes), max(1, int(size_max / per_offset)))
    stretch = stretch_of(look, clusters, wishes, at, at + count)
    return replace(stretch, target_start=row.again_target), count * per_offset


def folded(row: ProofRow, errand: Errand, result: Proven, read_ms: int, now_ms: int) -> ProofRow | None:
    """What stands of `row`, which may have changed meanwhile, now that this was read again; None: the same as before.
    `read_ms` is when the reading began."""
    look, stretch, _ = errand
    if not look.is_of(row):
        return None
    if result.difference is not None:
        within = row.from_offset <= result.to < row.to_offset
        return differing(row, result, now_ms) if within else None
    left = row
    if result.start > stretch.start:  # Retention was there meanwhile.
        left = narrowed(row, min(max(row.from_offset, result.start), row.to_offset), row.to_offset)
    left = read_again(left, stretch, result, read_ms)
    return left if left != row else None


class Pass(NamedTuple):
    """How everything proven stands: the partition that waits longest, since when, and what a pass over all takes.
    `read_ms` 0: it is not known to have been read whole ever."""

    place: str
    read_ms: int
    size: int
    seconds: float


def whole_pass(rows: Sequence[ProofRow], bytes_s: float) -> Pass | None:
    """None where nothing was proven. `seconds` are 0 where nothing is read again."""
    held = [row for row in rows if row.to_offset > row.from_offset]
    if not held:
        return None
    oldest = min(held, key=lambda row: (row.read_ms, row.topic, row.partition))
    size = sum(row.size or OFFSET_BYTES * (row.to_offset - row.from_offset) for row in held)
    return Pass(f"{oldest.topic}-{oldest.partition}", oldest.read_ms, size, size / bytes_s if bytes_s else 0.0)


def in_words(
    rows: Sequence[ProofRow], bytes_s: float, asked_h: float, now_ms: int, *, going: bool = True
) -> Iterator[str]:
    """How long ago everything was read, how long a pass takes, and whether that is what was asked for. `going`: a proof
    that never rests is there; nothing is said where none is, and nobody asked for an age."""
    found = whole_pass(rows, bytes_s)
    if found is None or not (going or asked_h):
        return
    ago = f"was last read whole {lasting((now_ms - found.read_ms) / 1000)} ago"
    since = ago if found.read_ms else "is not known to have been read whole"
    size = f"about {found.size / 1e6:,.0f} MB of both sides"
    if not bytes_s:
        yield f"what is proven is not read again (reread_mb_s = 0): {size}; {found.place} {since}"
        return
    rate = f"{bytes_s / 1e6:g} MB/s"
    yield (
        f"{'what is proven is read again' if going else 'a continuous proof would read what is proven again'}, {size}"
        f" in {lasting(found.seconds)} at {rate}: "
        f"{found.place} waits longest, it {since}"
    )
    refused = refusal(found, bytes_s, asked_h)
    if refused:
        yield refused


def refusal(found: Pass, bytes_s: float, asked_h: float) -> str:
    """Why the age that was asked for cannot be kept, with the figure; empty where it can."""
    if not asked_h or found.seconds <= asked_h * 3600:
        return ""
    least = found.size / (asked_h * 3600) / 1e6
    return (
        f"read_again_h = {asked_h:g} cannot be kept: a pass takes {found.seconds / 3600:,.1f} h at reread_mb_s ="
        f" {bytes_s / 1e6:g}; it takes at least {least:,.3g} MB/s"
    )


def lasting(seconds: float) -> str:
    """So long, in the unit that suits."""
    for unit, length in (("days", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
