"""One look for scripts, Nagios and Zabbix: is all well, and one number for each item."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from twinshore.delay import ages
from twinshore.delay.ages import aged, bare, fresh_s, paused
from twinshore.delay.last_watch import Heads, LastWatch, heads_of, last_watch, standing_of, told_of
from twinshore.delay.watchers import stale, unwatched
from twinshore.fleet import ConfigError
from twinshore.fleet.sentences import counted
from twinshore.fleet.settings import Settings
from twinshore.fleet.settings.edge import did_you_mean
from twinshore.store import AlarmRow, DelayPlace, Store, WatchRow


class Level(IntEnum):
    """As such checks end."""

    OK = 0
    WARNING = 1
    CRITICAL = 2


@dataclass(frozen=True, slots=True)
class Verdict:
    """CRITICAL: nobody looks, so that what stands is what was known last; WARNING: alarms stand, or figures are old."""

    level: Level
    sentences: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.level.name}: {'; '.join(self.sentences)}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One number, or `why` there is none that may be shown as today's: 0 would say that all is well."""

    value: float = 0.0
    why: str = ""


@dataclass(frozen=True, slots=True)
class _Seen:
    names: tuple[str, ...]
    places: tuple[DelayPlace, ...]
    standing: tuple[AlarmRow, ...]
    unseen: tuple[str, ...]
    fresh_s: float
    now_ms: int
    watch: LastWatch


def check_item(item: str) -> None:
    """ConfigError where there is none of that name."""
    if item not in ("", *ages.ITEMS):
        raise ConfigError(f"no item {item!r}; known: {', '.join(ages.ITEMS)}")


def discovery(links: Sequence[str], settings: Settings, store: Store) -> str:
    """Zabbix's low-level discovery of links and topics."""
    return ages.discovery([row for one in settings.chosen(links) for row in store.delay.places(one.name)])


def figure(
    item: str, links: Sequence[str], topic: str, settings: Settings, store: Store, *, clock: Callable[[], int]
) -> Figure:
    """`item` of these links, or of one topic of them. `clock` gives milliseconds, and is read behind the store: what
    was written meanwhile is not from the future."""
    check_item(item)
    seen = _look(links, settings, store, clock)
    why = ages.unknown(item, seen.places, topic, seen.now_ms, seen.fresh_s, seen.unseen)
    if why:
        return Figure(why=why)
    # One cause counts once; of a topic all that is wrong with it counts.
    heads = heads_of(seen.standing)
    counted = seen.standing if topic else [row for row, head in heads.items() if row == head]
    return Figure(ages.figure(item, seen.places, counted, topic))


def verdict(links: Sequence[str], topic: str, settings: Settings, store: Store, *, clock: Callable[[], int]) -> Verdict:
    """Of these links, or of one topic of them and of what is wrong with whole links."""
    seen = _look(links, settings, store, clock)
    places, standing, told, now_ms = seen.places, seen.standing, list(seen.unseen), seen.now_ms
    heads, known = heads_of(standing), {row.topic for row in places}
    if topic:
        places = tuple(row for row in places if row.topic == topic)
        standing = tuple(row for row in standing if row.topic in ("", topic))
    if topic and not places:
        told.append(f"no place of topic {topic} is watched{did_you_mean(topic, sorted(known))}")
    stands = _sentences(standing, heads, places, seen.watch, now_ms)
    if told:
        # What stands is what was known last, and worth as much as its age.
        return Verdict(Level.CRITICAL, (*told, *stands))
    warnings = (*stands, *aged(places, now_ms, seen.fresh_s), *bare(seen.names if not topic else (), places))
    if warnings:
        return Verdict(Level.WARNING, warnings)
    return Verdict(Level.OK, (_in_figures(places), *paused(places, topic)))


def _look(links: Sequence[str], settings: Settings, store: Store, clock: Callable[[], int]) -> _Seen:
    chosen = settings.chosen(links)
    names = tuple(one.name for one in chosen)
    places = tuple(row for name in names for row in store.delay.places(name))
    silent = [row for row in store.delay.alarms(open_only=True, limit=None) if row.kind == "monitor silent"]
    standing, watchers = (*standing_of(chosen, store), *silent), store.delay.watches()
    told, now_ms = told_of(settings.links, store), clock()
    unseen = tuple(_unseen(names, watchers, now_ms))
    watch = last_watch(settings.links, watchers, told, now_ms)
    return _Seen(names, places, standing, unseen, fresh_s(settings.delay.section), now_ms, watch)


def _unseen(links: Sequence[str], watchers: Sequence[WatchRow], now_ms: int) -> list[str]:
    """What nobody looks at now, in sentences."""
    told = [f"{name} has said nothing for {age_s:.0f} s" for name, age_s in stale(watchers, now_ms).items()]
    without = unwatched(links, watchers, now_ms)
    if without:
        told.append(f"no monitor watches {', '.join(without)}: start `twinshore delay watch`")
    return told


def _in_figures(places: Sequence[DelayPlace]) -> str:
    worst_ms = max((row.recovery_point_ms for row in places if not row.group), default=0)
    return f"{counted(len(places), 'place')} watched, recovery point {worst_ms / 1000:.1f} s"


def _sentences(
    standing: Sequence[AlarmRow], heads: Heads, places: Sequence[DelayPlace], watch: LastWatch, now_ms: int
) -> list[str]:
    """Each alarm's, a cause's with its parts behind it: for how long it has stood, or when it was judged last; and when
    its topic was read last."""
    read_ms = _read_ms(places)
    said = {}
    for row in standing:
        at_ms = read_ms.get((row.link, row.topic))
        read = f", read {(now_ms - at_ms) / 1000:.0f} s ago" if at_ms is not None else ""
        said[row] = f"{row.sentence} [{watch.how_long(row, now_ms)}{read}]"
    found = []
    for row in [row for row in standing if heads[row] == row or heads[row] not in said]:
        parts = [said[one] for one in standing if heads[one] == row and one != row]
        listed = f" (with it {len(parts)}: {'; '.join(parts)})" if parts else ""
        found.append(f"{said[row]}{listed}")
    return found


def _read_ms(places: Sequence[DelayPlace]) -> Mapping[tuple[str, str], int]:
    """When each topic's oldest figure was read."""
    found: dict[tuple[str, str], int] = {}
    for place in places:
        if not place.group:
            key = (place.link, place.topic)
            found[key] = min(place.at_ms, found.get(key, place.at_ms))
    return found
