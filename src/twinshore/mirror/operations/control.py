"""What an operator changes on a link while it runs: pauses, throttles, priorities, filters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from twinshore.fleet import ConfigError, Link, TwinshoreError
from twinshore.fleet.operations import Plan
from twinshore.fleet.settings import Settings
from twinshore.kafka.cluster import KafkaCluster
from twinshore.links import wishes
from twinshore.links.in_force import OF_LINK, InForce, as_json, in_force
from twinshore.links.rules import check_links
from twinshore.links.standing import others_in_force
from twinshore.links.wishes import Wish
from twinshore.mirror.control.named import carries, remark
from twinshore.service.clock import wall_ms
from twinshore.store import AuditRow, ControlRow, Store

TRIES_MAX = 5
ASK_S = 2.0


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing of the link, or of topics that match one of these expressions, is carried until resumed."""

    link: str
    topics: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Resume:
    """Ends the link's own pause, or that of these topics; `every` ends both."""

    link: str
    topics: Sequence[str] = ()
    every: bool = False


@dataclass(frozen=True, slots=True)
class Throttle:
    """Bounds what the link carries, or what each topic that matches `topic` carries; 0: no bound."""

    link: str
    bytes_s: int
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class Prioritise:
    """Topics that match go before those of a lower weight, or behind those of a higher; 0: as all others."""

    link: str
    topic: str
    weight: int


@dataclass(frozen=True, slots=True)
class Filter:
    """Other expressions in place of the link's filters; those that are empty stay."""

    link: str
    topics: Sequence[str] = ()
    exclude: Sequence[str] = ()
    groups: Sequence[str] = ()
    exclude_groups: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Reset:
    """Takes back what operators said of these values, or of all: the settings hold again."""

    link: str
    names: Sequence[str] = ()


Asked = Pause | Resume | Throttle | Prioritise | Filter | Reset


@dataclass(frozen=True, slots=True)
class ValueStep:
    """A value that changes; before and after as JSON."""

    link: str
    name: str
    before: str
    after: str

    def sentence(self, *, done: bool) -> str:
        return f"{self.link}: {self.name} {'changes' if done else 'would change'} from {self.before} to {self.after}"


@dataclass(frozen=True, slots=True)
class ControlChange(Plan[ValueStep]):
    """`seen`: the version of the link's control that it was planned on."""

    asked: Asked = Reset("")
    wish: Wish | None = None
    seen: int = 0


def plan(asked: Asked, settings: Settings, store: Store) -> ControlChange:
    """Which values would change; ConfigError where the wish cannot be, or where filters could loop or collide."""
    link = settings.link(asked.link)
    if isinstance(asked, Resume) and asked.every and asked.topics:
        raise ConfigError("--all and --topic: one or the other")
    seen, standing = store.controls.version(link.name), store.controls.of(link.name)
    now = in_force(link, standing)
    wish = wishes.check(wish_of(asked, now), link.name)
    steps = tuple(ValueStep(link.name, *found) for found in wishes.steps(now, wish, in_force(link, ())))
    names = {step.name for step in steps}
    rows = _rows(link.name, wish, names, 0, "")
    kept = [row for row in standing if row.name not in rows]
    then = in_force(link, [*kept, *(row for row in rows.values() if row)])
    if names & set(OF_LINK):
        # Only filters can clash: a link is paused, whatever is wrong with them.
        check_links(others_in_force(settings.links, store, then))
    shown = () if steps else (f"{link.name}: nothing to change",)
    return ControlChange(steps, shown, asked=asked, wish=wish, seen=seen)


def act(planned: ControlChange, settings: Settings, store: Store, *, by: str) -> Iterator[ValueStep]:
    """Does it in one transaction, with the audit. Where somebody else was quicker it is planned anew, on what they did;
    ConfigError where that happens again and again."""
    for _ in range(TRIES_MAX):
        link, now_ms = planned.asked.link, wall_ms()
        rows = _rows(link, planned.wish or {}, {step.name for step in planned.steps}, now_ms, by)
        told = [
            AuditRow(now_ms, link, "control", one.name, one.before, one.after, f"by {by}", by) for one in planned.steps
        ]
        if not planned.steps or store.controls.change(link, rows, seen=planned.seen, told=told):
            yield from planned.steps
            return
        planned = plan(planned.asked, settings, store)
    raise ConfigError(f"link {link} is being changed by somebody else all the time", hint="look at it and try again")


def remarks(asked: Asked, settings: Settings, store: Store, *, done: bool) -> list[str]:
    """What an operator should know behind it: expressions that meet no topic now, for which the source is asked, and
    pauses that stay once it is done."""
    now = in_force(settings.link(asked.link), store.controls.of(asked.link)).link
    return [*_unmet(asked, settings, now, store), *(_still_paused(asked, now) if done else [])]


def wish_of(asked: Asked, now: InForce) -> Wish:
    """What it makes of what holds now."""
    match asked:
        case Pause():
            return wishes.pause(now, asked.topics)
        case Resume():
            return wishes.resume(now, asked.topics, every=asked.every)
        case Throttle():
            return wishes.throttle(now, asked.bytes_s, asked.topic)
        case Prioritise():
            return wishes.priority(now, asked.topic, asked.weight)
        case Filter():
            return wishes.filters(asked.topics, asked.exclude, asked.groups, asked.exclude_groups)
        case Reset():
            return wishes.reset(asked.names)


def _named(asked: Asked) -> Sequence[str]:
    """The expressions for topics that begin to hold."""
    match asked:
        case Pause():
            return asked.topics
        case Throttle():
            return [asked.topic] if asked.topic and asked.bytes_s else []
        case Prioritise():
            return [asked.topic] if asked.weight else []
        case _:
            return []


def _unmet(asked: Asked, settings: Settings, now: Link, store: Store) -> list[str]:
    twins = {row.topic for row in store.twins.of(now.name)}
    unmet = [pattern for pattern in _named(asked) if not carries(pattern, now, twins)]
    topics = _source_topics(settings, now) if unmet else None
    said = [remark(pattern, now, topics) for pattern in unmet]
    return [f"{now.name}: {one}" for one in said if one]


def _still_paused(asked: Asked, now: Link) -> list[str]:
    if not isinstance(asked, Resume):
        return []
    return [
        f"{asked.link}: still paused: topics {paused!r}; end it with --topic {paused!r}, or --all"
        for paused in now.control.paused_topics
    ]


def _source_topics(settings: Settings, link: Link) -> set[str] | None:
    """None where the source cannot be asked from here."""
    try:
        source = KafkaCluster(settings.cluster(link.source), client_id="twinshore-link", patience_s=ASK_S, call_s=ASK_S)
        try:
            return set(source.metadata(None, refresh=True).topics)
        finally:
            source.close()
    except TwinshoreError:
        return None


def _rows(link: str, wish: Wish, names: set[str], now_ms: int, by: str) -> dict[str, ControlRow | None]:
    return {
        name: None if value is None else ControlRow(link, name, as_json(value), now_ms, by)
        for name, value in wish.items()
        if name in names
    }
