"""What the lines of `twinshore.followers` say: clients that write where homes are, and how far they have heard. Pure.

Whoever writes where home lines say is a **follower**: it says so before it writes, every second again, and at once when
it has heard a new word of a switch or has parked. What it says holds for a lease. A switch waits for a follower until
that has parked or its lease has run out, which the switch counts from when it saw the line, on its own clock: the
follower counts from before it wrote it, so it stops earlier. Strangers may write to the topic: they can make a switch
wait for nobody, and no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from twinshore.homes.home_lines import HEX_ID, TOPIC, WORD_MAX, Word
from twinshore.homes.record_lines import Line
from twinshore.wire.note_text import KEY_BYTES_MAX, as_word, json_or_none, note_text

FOLLOWER_BYTES_MAX = 1 << 20  # as the topic takes them
FOLLOWERS_MAX = 10_000
BUSY_MAX = 5
LEASE_MS_MAX = 60_000
SAID_MAX = 1 << 62
FOLLOWER = "follower"
ALL = "*"


@dataclass(frozen=True, slots=True)
class Follower:
    """`topics`: names, or beginnings of names with a `*` behind. `heard`: the word of each of them that a switch has
    just now; `parked`: those to which nothing is written, nor on its way, until another word settles them. `said` grows
    with each line, so that of the lines on two clusters the later one is known. `name` is for people. `busy`: of a
    proxy, some of the groups that have members who were told to gather, and have not yet."""

    id: str
    name: str
    topics: tuple[str, ...]
    heard: Mapping[str, Word] = field(default_factory=dict, hash=False)
    parked: frozenset[str] = frozenset()
    lease_ms: int = 5000
    said: int = 0
    busy: tuple[str, ...] = ()

    def writes(self, topic: str) -> bool:
        return covered(topic, self.topics)

    def waits(self, topic: str, word: Word) -> bool:
        """Whether it has parked for this word."""
        return topic in self.parked and self.heard.get(topic, (0, 0)) >= word

    def has_gathered(self, topic: str, word: Word) -> bool:
        """Whether it has heard this word, and no member there has still to gather."""
        return not self.busy and self.heard.get(topic, (0, 0)) >= word

    def line(self) -> Line:
        told: dict[str, object] = {
            "name": self.name,
            "topics": self.topics,
            "heard": self.heard,
            "parked": sorted(self.parked),
            "lease_ms": self.lease_ms,
            "said": self.said,
        }
        if self.busy:
            told["busy"] = self.busy
        return note_text([FOLLOWER, self.id]), note_text(told)


@dataclass(slots=True)
class FollowerLog:
    """The followers of one or several clusters, as their logs go on. `full`: there are more than are taken."""

    full: bool = False
    _seen: dict[str, tuple[Follower, float]] = field(default_factory=dict)

    def take(self, key: bytes | None, value: bytes | None, seen_s: float) -> None:
        """One line more, seen now; what is none is passed over. Without a value the follower has said goodbye."""
        match json_or_none(key, KEY_BYTES_MAX):
            case ["follower", str(name)] if HEX_ID.fullmatch(name):
                pass
            case _:
                return
        if value is None:
            self._seen.pop(name, None)
            return
        found, before = _follower(name, value), self._seen.get(name)
        if found is None or (before and found.said <= before[0].said):
            return
        if before is None and len(self._seen) >= FOLLOWERS_MAX:
            self._forget(seen_s)
        if before is None and len(self._seen) >= FOLLOWERS_MAX:
            self.full = True
            return
        self._seen[name] = found, seen_s + found.lease_ms / 1000

    def living(self, now_s: float) -> list[Follower]:
        """Those whose lease has not run out."""
        return [follower for follower, until_s in self._seen.values() if now_s < until_s]

    def awaited(self, words: Mapping[str, Word], now_s: float) -> dict[str, list[Follower]]:
        """Of each topic that is held since this word: the living followers that write it and have not parked yet. A
        topic for which nobody need be waited for is not in it."""
        living = self.living(now_s)
        found = {
            topic: [one for one in living if one.writes(topic) and not one.waits(topic, word)]
            for topic, word in words.items()
        }
        return {topic: some for topic, some in found.items() if some}

    def gathering(self, topic: str, word: Word, now_s: float) -> list[Follower]:
        """The living followers of it that have not heard this word, or have members that have not gathered."""
        return [one for one in self.living(now_s) if one.writes(topic) and not one.has_gathered(topic, word)]

    def _forget(self, now_s: float) -> None:
        self._seen = {name: one for name, one in self._seen.items() if now_s < one[1]}


def covers(pattern: str, topic: str) -> bool:
    """Whether the name, or the beginning of names, is the topic's. No more than that: strangers write patterns."""
    return topic.startswith(pattern[:-1]) if pattern.endswith(ALL) else topic == pattern


def covered(topic: str, patterns: Iterable[str]) -> bool:
    return any(covers(one, topic) for one in patterns)


def goodbye_line(follower_id: str) -> Line:
    return note_text([FOLLOWER, follower_id]), None


def _follower(follower_id: str, value: bytes) -> Follower | None:
    match json_or_none(value, FOLLOWER_BYTES_MAX):
        case {
            "name": str(name),
            "topics": list(topics),
            "heard": dict(heard),
            "parked": list(parked),
            "lease_ms": int(lease_ms),
            "said": int(said),
            **more,
        } if 0 < lease_ms <= LEASE_MS_MAX and 0 <= said < SAID_MAX:
            words = {topic: found for topic, raw in heard.items() if (found := _word(raw))}
            if len(words) < len(heard) or not _names([*heard, *parked]) or not _patterns(topics):
                return None
            busy = _groups(more.get("busy"))
            return Follower(follower_id, as_word(name), tuple(topics), words, frozenset(parked), lease_ms, said, busy)
        case _:
            return None


def _word(raw: object) -> Word | None:
    match raw:
        case [int(term), int(step)] if 0 < term < WORD_MAX and 0 <= step < WORD_MAX:
            return term, step
        case _:
            return None


def _groups(raw: object) -> tuple[str, ...]:
    """For people."""
    some = raw if isinstance(raw, list) else []
    return tuple(as_word(one) for one in some[:BUSY_MAX] if isinstance(one, str))


def _names(raw: Iterable[object]) -> bool:
    return all(isinstance(one, str) and TOPIC.fullmatch(one) for one in raw)


def _patterns(raw: Iterable[object]) -> bool:
    return all(isinstance(one, str) and (one == ALL or TOPIC.fullmatch(one.removesuffix(ALL))) for one in raw)
