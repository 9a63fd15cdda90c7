"""When an alarm rises, is told again, and clears, and which alarm is the cause of which others. Pure: signs and the
time in, what stands and what to tell out.

A dead cluster makes a link blind, its heartbeats late and each of its topics late: that is one thing to tell. What is
told is the root of such a chain, and its parts are listed in it; a part that outlives its cause is told by itself.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple


class AlarmKind(StrEnum):
    END_OFFSET = "end offset delay"  # The published algorithm's first alarm,
    GROUP = "group delay"  # and its second.
    RECOVERY_POINT = "recovery point"
    HEARTBEAT = "heartbeat"
    BLIND = "blind"
    STOPPED = "stopped"
    CLUSTER = "cluster away"
    STORE = "store away"
    MONITOR = "monitor silent"
    MIRROR = "mirror silent"
    UNPROVEN = "unproven"


class AlarmKey(NamedTuple):
    """What an alarm is about: one for all partitions of a topic. Topic and group are empty where none is meant. `link`
    is a cluster where one is away, and whoever is silent or cannot be reached."""

    link: str
    kind: AlarmKind
    topic: str = ""
    group: str = ""


LATE = frozenset({AlarmKind.HEARTBEAT, AlarmKind.RECOVERY_POINT, AlarmKind.END_OFFSET, AlarmKind.GROUP})
# The store is nobody's link: one for all who share it.
STORE = AlarmKey("the store", AlarmKind.STORE)
# Causes before what follows from them.
_ORDER = (AlarmKind.STORE, AlarmKind.CLUSTER, AlarmKind.MIRROR, AlarmKind.BLIND, AlarmKind.STOPPED)


def cluster_key(cluster: str) -> AlarmKey:
    """The alarm for a cluster that does not answer: one for all links of it."""
    return AlarmKey(cluster, AlarmKind.CLUSTER)


def causes(key: AlarmKey) -> Iterator[AlarmKey]:
    """All that this may follow from, the furthest first."""
    kind = key.kind
    if kind in LATE or kind is AlarmKind.MIRROR:
        yield STORE
    if kind in LATE or kind in (AlarmKind.BLIND, AlarmKind.STOPPED):
        source, arrow, target = key.link.partition("->")
        if arrow:
            yield cluster_key(source)
            yield cluster_key(target)
    if kind in LATE:
        yield AlarmKey(key.link, AlarmKind.MIRROR)
    if kind in LATE or (kind is AlarmKind.BLIND and (key.topic or key.group)):
        yield AlarmKey(key.link, AlarmKind.BLIND)
    if kind in LATE and key.topic:
        yield AlarmKey(key.link, AlarmKind.BLIND, key.topic)
        yield AlarmKey(key.link, AlarmKind.STOPPED, key.topic)


def root(key: AlarmKey, there: Container[AlarmKey], *, beyond: bool = False) -> AlarmKey:
    """What it follows from in the end, of all that is `there`: itself where it follows from nothing. `beyond`: it is
    wrong of more than the partitions that are stopped, so that their stop does not explain it."""
    while (cause := next((one for one in causes(key) if one in there and explains(one, beyond)), None)) is not None:
        key = cause
    return key


def explains(cause: AlarmKey, beyond: bool) -> bool:
    """Whether it explains what may follow from it, where that is wrong of more than what is stopped."""
    return not (beyond and cause.kind is AlarmKind.STOPPED)


def parts(key: AlarmKey, among: Iterable[AlarmKey]) -> list[AlarmKey]:
    """Those that may follow from this, at whatever remove."""
    return sorted(one for one in among if one != key and key in _ancestors(one))


def _ancestors(key: AlarmKey) -> set[AlarmKey]:
    found: set[AlarmKey] = set()
    for cause in causes(key):
        found |= {cause} | _ancestors(cause)
    return found


def rank(key: AlarmKey) -> int:
    """Causes come before what follows from them."""
    if key.kind is AlarmKind.BLIND and (key.topic or key.group):
        return len(_ORDER)
    return _ORDER.index(key.kind) if key.kind in _ORDER else len(_ORDER) + 1


# What outlives its cause is told by itself, once whoever mended the cause has had this time to see it go too.
SETTLE_MS = 30_000
PARTS_NAMED = 5
# What rises long after its cause was told is gathered for so long after the last message of that cause.
GATHER_MS = 60_000


class Sign(NamedTuple):
    """Whether something is wrong now, with the sentence that would be told. Where nothing is: why it is over, if for
    another reason than that it is well again. `beyond`: it is wrong of more than the partitions that are stopped.
    `held`: it is so on purpose, as in a pause: what stands goes on to stand with this sentence, nothing rises, and
    nobody is told again."""

    key: AlarmKey
    wrong: bool
    sentence: str = ""
    beyond: bool = False
    held: bool = False


class Manner(NamedTuple):
    """`rise_s`: for how long it must be wrong without a break; `clear_s`: right without a break; `repeat_s`: told no
    sooner again, 0: never again; `with_s`: what follows from it and rises so soon after it was told comes with it, what
    rises later may be another loss."""

    rise_s: float = 0.0
    clear_s: float = 0.0
    repeat_s: float = 600.0
    with_s: float = 120.0


class Standing(NamedTuple):
    """Something that is wrong, or was until just now. `told_ms` is None for what rose in a quiet time, or as a part of
    its cause; `part_ms` is when it was such a part last; `beyond` as its sign says."""

    key: AlarmKey
    wrong_ms: int
    sentence: str
    raised_ms: int | None = None
    told_ms: int | None = None
    times_told: int = 0
    right_ms: int | None = None
    part_ms: int | None = None
    beyond: bool = False


def moved(one: Standing, by_ms: int) -> Standing:
    """As it stands by a clock that was set by so much."""
    moments = {name: value for name, value in one._asdict().items() if name.endswith("_ms") and value is not None}
    return one._replace(**{name: at_ms + by_ms for name, at_ms in moments.items()})


class Happening(StrEnum):
    RAISED = "raised"
    REPEATED = "repeated"
    CLEARED = "cleared"


class Event(NamedTuple):
    """`tell`: whether operators are told now; in quiet times it only goes into the history, and so does a part of a
    cause. `parts`: the sentences of those that follow from it; the first `also` of them rose since it was told."""

    happening: Happening
    key: AlarmKey
    at_ms: int
    raised_ms: int
    sentence: str
    tell: bool = True
    parts: tuple[str, ...] = ()
    also: int = 0


Book = Mapping[AlarmKey, Standing]


def turn(
    book: Book, signs: Iterable[Sign], now_ms: int, manners: Mapping[AlarmKind, Manner], *, quiet: bool = False
) -> tuple[dict[AlarmKey, Standing], list[Event]]:
    """What stands after these signs, and what happened. A key without a sign stays as it is: no news is not good."""
    standing = dict(book)
    events: list[Event] = []
    joined: set[AlarmKey] = set()
    for sign in sorted(signs, key=lambda sign: rank(sign.key)):
        manner = manners.get(sign.key.kind, Manner())
        before = standing.get(sign.key)
        if sign.wrong:
            cause = _cause(sign, standing)
            one, happened = _wrong(before, sign, now_ms, manner, quiet=quiet, cause=cause)
            standing[sign.key] = one
            if cause is not None and _is_news(one, cause, manners) and not quiet:
                joined.add(cause.key)
        elif before is None:
            continue
        elif sign.held and before.raised_ms is not None:
            standing[sign.key], happened = before._replace(right_ms=None, sentence=sign.sentence), None
        else:
            stays, happened = _right(before, now_ms, manner, sign.sentence, quiet=quiet)
            if stays is None:
                del standing[sign.key]
            else:
                standing[sign.key] = stays
        events += [happened] if happened else []
    for key in sorted(joined):
        one = standing[key]
        if one.right_ms is None and one.told_ms is not None and now_ms - one.told_ms >= GATHER_MS:
            standing[key], happened = _again(one, now_ms)
            events.append(happened)
    return standing, [_with_parts(event, standing, book.get(event.key), manners) for event in events]


def _cause(sign: Sign, standing: Book) -> Standing | None:
    """What it follows from. One that has not risen yet may be about to: what follows from it waits for that."""
    found = root(sign.key, standing, beyond=sign.beyond)
    return None if found == sign.key else standing[found]


def _is_news(one: Standing, cause: Standing, manners: Mapping[AlarmKind, Manner]) -> bool:
    """Whether it rose after its cause was told, and too late to have come with it: nobody has heard of it."""
    if one.raised_ms is None or one.told_ms is not None or cause.told_ms is None:
        return False
    first = cause.times_told <= 1
    return one.raised_ms > cause.told_ms + (manners.get(cause.key.kind, Manner()).with_s * 1000 if first else 0)


def _with_parts(event: Event, standing: Book, before: Standing | None, manners: Mapping[AlarmKind, Manner]) -> Event:
    """What is news since the cause was told comes first, so that it is named."""
    if not event.tell:
        return event
    among = [key for key, one in standing.items() if one.raised_ms is not None and explains(event.key, one.beyond)]
    found = [standing[key] for key in parts(event.key, among)]
    news = [one for one in found if before and _is_news(one, before, manners)]
    ordered = [*news, *(one for one in found if one not in news)] if news else found
    also = len(news) if event.happening is Happening.REPEATED else 0
    return event._replace(parts=tuple(one.sentence for one in ordered), also=also)


def _wrong(
    before: Standing | None, sign: Sign, now_ms: int, manner: Manner, *, quiet: bool, cause: Standing | None
) -> tuple[Standing, Event | None]:
    one = before or Standing(sign.key, now_ms, sign.sentence)
    one = one._replace(right_ms=None, sentence=sign.sentence, beyond=sign.beyond)
    hushed = quiet or cause is not None
    if cause is not None and cause.raised_ms is not None:
        one = one._replace(part_ms=now_ms)
    if one.raised_ms is None:
        if now_ms - one.wrong_ms < manner.rise_s * 1000:
            return one, None
        tell = not hushed and not _settles(one, now_ms)
        one = one._replace(raised_ms=now_ms, told_ms=now_ms if tell else None, times_told=int(tell))
        return one, Event(Happening.RAISED, one.key, now_ms, now_ms, one.sentence, tell=tell)
    if hushed:
        return one, None
    first = one.told_ms is None
    if first and _settles(one, now_ms):
        return one, None
    again = manner.repeat_s > 0 and not first and now_ms - (one.told_ms or 0) >= manner.repeat_s * 1000
    if not first and not again:
        return one, None
    return _again(one, now_ms)


def _settles(one: Standing, now_ms: int) -> bool:
    """Whether its cause has only just gone. What is beyond its cause was never explained by it."""
    return one.part_ms is not None and now_ms - one.part_ms < SETTLE_MS and not one.beyond


def _again(one: Standing, now_ms: int) -> tuple[Standing, Event]:
    one = one._replace(told_ms=now_ms, times_told=one.times_told + 1)
    return one, Event(Happening.REPEATED, one.key, now_ms, one.raised_ms or now_ms, one.sentence)


def _right(
    before: Standing, now_ms: int, manner: Manner, why: str, *, quiet: bool
) -> tuple[Standing | None, Event | None]:
    if before.raised_ms is None:
        return None, None
    right_ms = now_ms if before.right_ms is None else before.right_ms
    if now_ms - right_ms < manner.clear_s * 1000:
        return before._replace(right_ms=right_ms), None
    # Nobody who was never told that it was wrong wants to hear that it is right.
    tell = before.told_ms is not None and not quiet
    lasted_s = max(0, right_ms - before.raised_ms) / 1000
    sentence = f"{what(before.key)}: {f'over: {why}' if why else 'well again'}; it lasted {lasted_s:.0f} s"
    return None, Event(Happening.CLEARED, before.key, now_ms, before.raised_ms, sentence, tell=tell)


def what(key: AlarmKey) -> str:
    """What the alarm is about, in words."""
    topic = f" {key.topic}" if key.topic else ""
    # Without a topic it names a part of the link: its windows, its groups.
    group = (f", group {key.group}" if topic else f" {key.group}") if key.group else ""
    return f"{key.link}{topic}{group}: {key.kind}"


def in_words(event: Event) -> str:
    """Its sentence, and those of its parts: with a cause that is over, what still is so."""
    if not event.parts:
        return event.sentence
    intro = "Still so" if event.happening is Happening.CLEARED else "With it"
    news, rest = event.parts[: event.also], event.parts[event.also :]
    return " ".join([event.sentence, *_listed("Also", news), *_listed(intro, rest)])


def _listed(intro: str, sentences: tuple[str, ...]) -> list[str]:
    more = f" And {len(sentences) - PARTS_NAMED} more." if len(sentences) > PARTS_NAMED else ""
    return [f"{intro} ({len(sentences)}): {' '.join(sentences[:PARTS_NAMED])}{more}"] if sentences else []
