"""How far behind each topic is, what alarms stand, and who watches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from twinshore.delay.last_watch import LastWatch, heads_of, last_watch, standing_of, told_of
from twinshore.delay.sampler import resting_of
from twinshore.fleet import ConfigError, Link
from twinshore.fleet.settings import Settings
from twinshore.fleet.settings.edge import did_you_mean
from twinshore.links.in_force import in_force
from twinshore.store import AlarmRow, DelayPlace, Store, WatchRow


@dataclass(frozen=True, slots=True)
class TopicDelay:
    """A topic's partitions, or a group's places in them, together. `about`: nobody knows it exactly, as others write
    the copy. `seen_s`: how old the oldest figure is. `stopped`: why the mirror does not carry it, or not all of it.
    `unplaced`: nobody knows where the group would go on, or not by the source's offsets."""

    link: str
    topic: str
    group: str
    about: bool
    partitions: int
    source_end: int
    target_end: int
    lag_records: int
    recovery_point_ms: int
    seen_s: float
    stopped: str = ""
    unplaced: bool = False

    @property
    def unknown(self) -> bool:
        """Whether lag and recovery point say nothing: a copy that is not carried and was never a twin may lack
        everything."""
        return self.unplaced or (self.about and bool(self.stopped))


@dataclass(frozen=True, slots=True)
class Delays:
    """As a monitor saw it last; `now_ms` is when it was asked."""

    places: tuple[DelayPlace, ...]
    standing: tuple[AlarmRow, ...]
    watchers: tuple[WatchRow, ...]
    now_ms: int
    watch: LastWatch
    stopped: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def topics(self) -> list[TopicDelay]:
        """By link, topic and group."""
        found: dict[tuple[str, str, str], list[DelayPlace]] = {}
        for row in self.places:
            found.setdefault((row.link, row.topic, row.group), []).append(row)
        return [self._topic(key, ours) for key, ours in sorted(found.items())]

    def sentences(self) -> list[str]:
        """Topics that are not carried, alarms, each cause with what follows from it, and who watches."""
        heads = heads_of(self.standing)
        shown = {(row.link, row.topic) for row in self.places}
        found = [f"not carried: {why}" for at, why in sorted(self.stopped.items()) if at in shown]
        for alarm in [row for row in self.standing if heads[row] == row]:
            parts = [row for row in self.standing if heads[row] == alarm and row != alarm]
            that = "" if self.watch.watches(alarm) else "that "
            found.append(f"alarm {that}{self.watch.how_long(alarm, self.now_ms)}: {alarm.sentence}")
            found += [f"  with it, {self.watch.how_long(one, self.now_ms)}: {one.sentence}" for one in parts]
        found += [f"{row.name}: {row.sentence}, {self._age_s(row.beaten_ms):.0f} s ago" for row in self.watchers]
        return [*found, *([] if self.watchers else ["nobody watches: start `twinshore delay watch`"])]

    def as_values(self) -> dict[str, Any]:
        """For programs."""
        heads = heads_of(self.standing)
        parts = {row: heads[row].id if heads[row] != row else None for row in self.standing}
        return {
            "places": [_values(row) | {"age_s": round(self._age_s(row.at_ms), 3)} for row in self.places],
            "alarms": [asdict(row) | {"part_of": parts[row]} | self._watched(row) for row in self.standing],
            "watchers": [asdict(row) | {"age_s": round(self._age_s(row.beaten_ms), 3)} for row in self.watchers],
            "not_carried": [{"link": at[0], "topic": at[1], "why": why} for at, why in sorted(self.stopped.items())],
        }

    def _watched(self, row: AlarmRow) -> dict[str, Any]:
        return {"watched": self.watch.watches(row), "last_watched_ms": self.watch.last_of(row)}

    def _age_s(self, at_ms: int) -> float:
        return (self.now_ms - at_ms) / 1000

    def _topic(self, key: tuple[str, str, str], ours: Sequence[DelayPlace]) -> TopicDelay:
        return TopicDelay(
            *key,
            any(row.axis == "foreign" for row in ours),
            len(ours),
            sum(row.source_end for row in ours),
            sum(row.target_end for row in ours),
            sum(row.lag_records for row in ours),
            max(row.recovery_point_ms for row in ours),
            max(self._age_s(row.at_ms) for row in ours),
            self.stopped.get(key[:2], ""),
            bool(key[2]) and any(row.target_end < 0 or row.axis == "mapped" for row in ours),
        )


def delays(links: Sequence[str], topic: str, settings: Settings, store: Store, *, clock: Callable[[], int]) -> Delays:
    """Of these links, or all; of one topic where it is named. ConfigError where nobody watches such a topic. `clock`
    gives milliseconds, and is read behind the store: what was written meanwhile is not from the future."""
    chosen = settings.chosen(links)
    watched = [row for link in chosen for row in store.delay.places(link.name)]
    places = tuple(row for row in watched if topic in ("", row.topic))
    if topic and not places:
        near = did_you_mean(topic, sorted({row.topic for row in watched}))
        raise ConfigError(f"no place of topic {topic} is watched{near}")
    standing, watchers = tuple(standing_of(chosen, store)), tuple(store.delay.watches())
    stopped = {(link.name, name): why for link in chosen for name, why in _stopped(link, store) if topic in ("", name)}
    told, now_ms = told_of(settings.links, store), clock()
    return Delays(places, standing, watchers, now_ms, last_watch(settings.links, watchers, told, now_ms), stopped)


def history(links: Sequence[str], settings: Settings, store: Store, *, limit: int) -> list[AlarmRow]:
    """Alarms that stand or stood, newest first; without a name also those of monitors, which are no link's."""
    names = [one.name for one in settings.chosen(links)] if links else []
    return list(store.delay.alarms(*names, limit=limit))


def stood(rows: Sequence[AlarmRow], settings: Settings, store: Store, *, clock: Callable[[], int]) -> list[str]:
    """For how long each of these alarms stood; that it stands, or when it was judged last. `clock` as in `delays`."""
    told, watchers = told_of(settings.links, store), store.delay.watches()
    now_ms = clock()
    watch = last_watch(settings.links, watchers, told, now_ms)
    return [
        f"for {(row.cleared_ms - row.raised_ms) / 1000:.0f} s"
        if row.cleared_ms is not None
        else "stands"
        if watch.watches(row)
        else watch.how_long(row, now_ms)
        for row in rows
    ]


def _stopped(link: Link, store: Store) -> Iterable[tuple[str, str]]:
    """By the ledger, as a monitor hears it too."""
    held = in_force(link, store.controls.of(link.name)).link
    said, _ = resting_of(held, store.ledger.rows(link.name, open_only=True))
    return said.items()


def _values(row: DelayPlace) -> dict[str, Any]:
    return {name: value for name, value in asdict(row).items() if name != "waiting"}
