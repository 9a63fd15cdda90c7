"""The alarms that stand, which of them follow from others, and which somebody judges now; when the others were judged
last, as what stood then may be over.

A monitor that ends in good order leaves the moment in the store; of one that was killed its last beat is there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from twinshore.delay.alarms import STORE, AlarmKey, AlarmKind, root
from twinshore.delay.watchers import WATCHES_WATCHERS, stale, unwatched
from twinshore.fleet import Link
from twinshore.fleet.sentences import ago
from twinshore.store import AlarmRow, Remembered, Store, WatchRow

Heads = dict[AlarmRow, AlarmRow]


def standing_of(links: Sequence[Link], store: Store) -> list[AlarmRow]:
    """The open alarms of these links, of their clusters and of the store."""
    clusters = sorted({cluster for one in links for cluster in (one.source, one.target)})
    names = [*(one.name for one in links), *clusters, STORE.link]
    return [row for name in names for row in store.delay.alarms(name, open_only=True)]


def heads_of(standing: Sequence[AlarmRow]) -> Heads:
    """For each alarm the one that it follows from; itself where it follows from none of them."""
    rows = {AlarmKey(row.link, AlarmKind(row.kind), row.topic, row.group): row for row in standing}
    return {row: rows[root(key, rows)] for key, row in rows.items()}


# As `Remembered` of the store: when a monitor of the link ended in good order.
KIND = "last watch"
THEN = "stood when a monitor last watched"
# These may also be seen by whoever watches the watchers.
BY_WATCHERS = frozenset({AlarmKind.MIRROR, AlarmKind.MONITOR})


def ended(links: Iterable[str], now_ms: int) -> list[Remembered]:
    """For the store: their monitor ends now."""
    return [Remembered(link, KIND, "", "", KIND, now_ms) for link in links]


@dataclass(frozen=True, slots=True)
class LastWatch:
    """`living`: links that a monitor watches now. `last_ms`: when one last watched the others, as far as anybody knows.
    `watchers`: whether somebody watches the watchers; `anybody`: whether anybody watches at all."""

    links: tuple[Link, ...]
    living: frozenset[str]
    last_ms: Mapping[str, int]
    watchers: bool
    anybody: bool

    def watches(self, row: AlarmRow) -> bool:
        """Whether somebody judges this alarm now."""
        if row.kind in BY_WATCHERS and self.watchers:
            return True
        ours = self._links_of(row)
        return any(link in self.living for link in ours) if ours else self.anybody

    def last_of(self, row: AlarmRow) -> int | None:
        """When it was judged last; None where that is now, or nobody knows."""
        if self.watches(row):
            return None
        ours = self._links_of(row) or tuple(self.last_ms)
        return max((self.last_ms[link] for link in ours if link in self.last_ms), default=None)

    def how_long(self, row: AlarmRow, now_ms: int) -> str:
        """As in "for 9 s"; of what nobody judges any more, when that was seen last."""
        if self.watches(row):
            return f"for {(now_ms - row.raised_ms) / 1000:.0f} s"
        last_ms = self.last_of(row)
        return THEN if last_ms is None else f"{THEN}, {ago(max(0.0, (now_ms - last_ms) / 1000))} ago"

    def _links_of(self, row: AlarmRow) -> tuple[str, ...]:
        """The link itself, or those of a cluster; none of what is no link's."""
        return tuple(one.name for one in self.links if row.link in (one.name, one.source, one.target))


def last_watch(
    links: Sequence[Link], watches: Sequence[WatchRow], told: Iterable[Remembered], now_ms: int
) -> LastWatch:
    """Of all these links, by the entries of those who watch, and by what ended monitors left."""
    names, silent = [one.name for one in links], stale(watches, now_ms)
    last_ms = {row.link: row.since_ms for row in told}
    for row in watches:
        for link in row.links if row.name in silent else ():
            last_ms[link] = max(row.beaten_ms, last_ms.get(link, 0))
    alive = [row for row in watches if row.name not in silent]
    return LastWatch(
        tuple(links),
        frozenset(names) - frozenset(unwatched(names, watches, now_ms)),
        last_ms,
        any(row.kind == WATCHES_WATCHERS for row in alive),
        bool(alive),
    )


def told_of(links: Iterable[Link], store: Store) -> Sequence[Remembered]:
    """What ended monitors of these links left in the store."""
    return store.memories.of_each([one.name for one in links], KIND)
