"""When an alarm rises, is told again, and clears. Pure: signs and the time in, what stands and what to tell out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from twinshore.delay.causes import AlarmKey, AlarmKind, parts, rank, root

__all__ = [
    "AlarmKey",
    "AlarmKind",
    "Book",
    "Event",
    "Happening",
    "Manner",
    "Sign",
    "Standing",
    "in_words",
    "moved",
    "turn",
    "what",
]

# What outlives its cause is told by itself, once whoever mended the cause has had this time to see it go too.
SETTLE_MS = 30_000
PARTS_NAMED = 5


class Sign(NamedTuple):
    """Whether something is wrong now, with the sentence that would be told. Where nothing is: why it is over, if for
    another reason than that it is well again."""

    key: AlarmKey
    wrong: bool
    sentence: str = ""


class Manner(NamedTuple):
    """`rise_s`: for how long it must be wrong without a break; `clear_s`: right without a break; `repeat_s`: told no
    sooner again, 0: never again."""

    rise_s: float = 0.0
    clear_s: float = 0.0
    repeat_s: float = 600.0


class Standing(NamedTuple):
    """Something that is wrong, or was until just now. `told_ms` is None for what rose in a quiet time, or as a part of
    its cause; `part_ms` is when it was such a part last."""

    key: AlarmKey
    wrong_ms: int
    sentence: str
    raised_ms: int | None = None
    told_ms: int | None = None
    times_told: int = 0
    right_ms: int | None = None
    part_ms: int | None = None


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
    cause. `parts`: the sentences of those that follow from it."""

    happening: Happening
    key: AlarmKey
    at_ms: int
    raised_ms: int
    sentence: str
    tell: bool = True
    parts: tuple[str, ...] = ()


Book = Mapping[AlarmKey, Standing]


def turn(
    book: Book, signs: Iterable[Sign], now_ms: int, manners: Mapping[AlarmKind, Manner], *, quiet: bool = False
) -> tuple[dict[AlarmKey, Standing], list[Event]]:
    """What stands after these signs, and what happened. A key without a sign stays as it is: no news is not good."""
    standing = dict(book)
    events: list[Event] = []
    for sign in sorted(signs, key=lambda sign: rank(sign.key)):
        manner = manners.get(sign.key.kind, Manner())
        before = standing.get(sign.key)
        if sign.wrong:
            one, happened = _wrong(before, sign, now_ms, manner, quiet=quiet, cause=_cause(sign.key, standing))
            standing[sign.key] = one
        elif before is not None:
            stays, happened = _right(before, now_ms, manner, sign.sentence, quiet=quiet)
            if stays is None:
                del standing[sign.key]
            else:
                standing[sign.key] = stays
        else:
            continue
        events += [happened] if happened else []
    return standing, [_with_parts(event, standing) for event in events]


def _cause(key: AlarmKey, standing: Book) -> Standing | None:
    """What it follows from. One that has not risen yet may be about to: what follows from it waits for that."""
    found = root(key, standing)
    return None if found == key else standing[found]


def _with_parts(event: Event, standing: Book) -> Event:
    among = [key for key, one in standing.items() if one.raised_ms is not None] if event.tell else []
    return event._replace(parts=tuple(standing[key].sentence for key in parts(event.key, among)))


def _wrong(
    before: Standing | None, sign: Sign, now_ms: int, manner: Manner, *, quiet: bool, cause: Standing | None
) -> tuple[Standing, Event | None]:
    one = before or Standing(sign.key, now_ms, sign.sentence)
    one = one._replace(right_ms=None, sentence=sign.sentence)
    hushed = quiet or cause is not None
    if cause is not None and cause.raised_ms is not None:
        one = one._replace(part_ms=now_ms)
    if one.raised_ms is None:
        if now_ms - one.wrong_ms < manner.rise_s * 1000:
            return one, None
        settles = one.part_ms is not None and now_ms - one.part_ms < SETTLE_MS
        tell = not hushed and not settles
        one = one._replace(raised_ms=now_ms, told_ms=now_ms if tell else None, times_told=int(tell))
        return one, Event(Happening.RAISED, one.key, now_ms, now_ms, one.sentence, tell=tell)
    if hushed:
        return one, None
    first = one.told_ms is None
    if first and one.part_ms is not None and now_ms - one.part_ms < SETTLE_MS:
        return one, None
    again = manner.repeat_s > 0 and not first and now_ms - (one.told_ms or 0) >= manner.repeat_s * 1000
    if not first and not again:
        return one, None
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
    more = f" And {len(event.parts) - PARTS_NAMED} more." if len(event.parts) > PARTS_NAMED else ""
    return f"{event.sentence} {intro} ({len(event.parts)}): {' '.join(event.parts[:PARTS_NAMED])}{more}"
