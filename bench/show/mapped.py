"""Claims about mapped twins: a copy of MirrorMaker 2 goes on where it ended, and its map of offsets is exact and quick.

`python -m bench.show.mapped` tries them alone; LONG=1 with more records and a larger map.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from random import Random
from statistics import median

from bench.kit.claims import Claim, Finding, Once
from bench.kit.showing import run_show
from testkit.mapped import Move, Moved
from twinshore.config.model import OffsetRun, SourceOffset, TargetOffset
from twinshore.lab.cluster import LabCluster
from twinshore.state.core.values import ProgressRecord, TwinRow
from twinshore.state.store import open_store

HEAD = """\
# Mapped twins, shown

Written by `python -m bench.show.mapped`, which lets the real MirrorMaker 2 copy topics, ends it, and carries its
copies on; no figure is typed by hand.
"""
LINK = "east->west"
LOOK_UPS = 400
# A thousand times as many rows may cost so many times as much: a logarithm's part and a machine's noise.
SLOWER_MOST = 3.0


def moved(*, killed: bool) -> Callable[[bool], Moved]:
    """One move between two clusters of its own."""

    def run(long: bool) -> Moved:
        with (
            LabCluster("east") as source,
            LabCluster("west") as target,
            tempfile.TemporaryDirectory(prefix="twinshore-show-") as folder,
        ):
            size = {"records": 100_000, "kills": 3} if long else {"records": 3_000, "kills": 1}
            return Move(source.cluster, target.cluster, "orders", Path(folder), killed=killed, **size).run()

    return run


def claims(seed: int, only: Collection[str] = ()) -> list[Claim]:
    """All of them; several rest on one move."""
    del only
    stopped, killed = Once(moved(killed=False)), Once(moved(killed=True))
    return [
        Claim("mapped-stopped", "MirrorMaker 2 stopped, its copy carried on: 0 lost, 0 doubled", _content(stopped)),
        Claim("mapped-killed", "MirrorMaker 2 killed while it copies: the same", _content(killed)),
        Claim("mapped-map", "every offset of the map, from either side, is the record's, after kill -9", _map(stopped)),
        Claim(
            "mapped-look-up",
            f"a map a thousand times as long is looked up in at most {SLOWER_MOST:g} times the time",
            lambda long: _look_up(Random(seed), 1_000_000 if long else 200_000),
        ),
    ]


def _content(once: Once[Moved]) -> Callable[[bool], Finding]:
    def run(long: bool) -> Finding:
        found = once(long)
        spoiled = found.lost + found.doubled + found.reordered
        figure = (
            f"{found.by_mirror_maker} records by MirrorMaker, {found.records} in all:"
            f" {found.lost} lost, {found.doubled} doubled, {found.reordered} partitions reordered"
        )
        return Finding(figure, spoiled == 0 and found.records > found.by_mirror_maker, (("mapped_spoiled", spoiled),))

    return run


def _map(once: Once[Moved]) -> Callable[[bool], Finding]:
    def run(long: bool) -> Finding:
        found = once(long)
        whole = found.looked_up == found.records - found.by_mirror_maker
        figure = f"{found.looked_up} offsets looked up both ways, {found.wrong} wrong, {found.offset_runs} offset runs"
        return Finding(figure, whole and found.wrong == 0, (("mapped_looked_up", found.looked_up),))

    return run


def _look_up(chance: Random, many: int) -> Finding:
    """Two maps in one store, one a thousand times as long as the other; either side by turns."""
    few = many // 1000
    with (
        tempfile.TemporaryDirectory(prefix="twinshore-show-") as folder,
        open_store(f"sqlite:///{folder}/store.db") as store,
    ):
        for topic, count in (("few", few), ("many", many)):
            first = OffsetRun(SourceOffset(0), TargetOffset(0), 0, 0)
            store.offset_runs.adopt([(TwinRow(LINK, topic, 0, "aa", "bb", 0, 0, 0), first)])
            for at in range(0, count, 10_000):
                rows = tuple(
                    OffsetRun(SourceOffset(11 * n), TargetOffset(13 * n), 10, 10 * n % 2**31)
                    for n in range(at, min(count, at + 10_000))
                )
                end = 11 * (at + len(rows))
                store.progress.record(
                    [
                        ProgressRecord(
                            link=LINK,
                            topic=topic,
                            partition=0,
                            from_offset=11 * at,
                            to_offset=end,
                            records=1,
                            bytes=1,
                            batches=1,
                            source_end=end,
                            first_ms=0,
                            last_ms=1,
                            offset_runs=rows,
                        )
                    ]
                )
        took: dict[str, list[float]] = {"few": [], "many": []}
        for turn in range(LOOK_UPS):
            for topic, count in (("few", few), ("many", many)):
                offset = chance.randrange(11 * count)
                begun_s = time.perf_counter()
                store.offset_runs.around(LINK, topic, 0, offset, on_target=bool(turn % 2))
                took[topic].append(time.perf_counter() - begun_s)
    short_ms, long_ms = 1000 * median(took["few"]), 1000 * median(took["many"])
    figure = f"{few} offset runs: {short_ms:.2f} ms, {many} offset runs: {long_ms:.2f} ms (median of {LOOK_UPS})"
    return Finding(figure, long_ms <= SLOWER_MOST * short_ms, (("mapped_look_up_ms", round(long_ms, 3)),))


def main(arguments: Sequence[str] | None = None) -> int:
    """Progress to standard error; the table and, last, one line of JSON to standard output."""
    return run_show("mapped", HEAD, claims, arguments)


if __name__ == "__main__":
    sys.exit(main())
