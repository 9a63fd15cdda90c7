"""The records of `twinshore.homes` and `twinshore.twins`: topic homes, claims, switch records, twins.

`twinshore.homes` is compacted, and its keys are JSON lists. Third parties may write to both topics: other forms are
skipped. Each value has a version `v`; `read_line` judges the version, and a newer record is never interpreted.

**Home records** of a topic are ordered by version, (term, step): the highest is current, at any offset. Among different
records with one version the first in the log wins. So a writer reads the log to its end to see whether its record won.
Compaction keeps a topic's last record: readers that find another one current write that again (`mending`).

A switch writes the highest term read plus one. A record far above (`is_implausible`) the versions known from this log,
a store or another cluster comes from a third party: it is skipped and reported (`far`).

A **claim** says that a switch has a topic. The first claim holds until released. A holder never writes its claim again,
so compaction cannot move that behind another.

A **switch record** is split into parts. A head names them and the record that this one follows. A head that follows
another than the current record has lost. So the log decides between two processes that continue one switch, and tells
the loser.

A record of `twinshore.twins` counts for one topic id alone, never for a later topic of that name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import groupby
from typing import Any, NamedTuple

from twinshore.config import frozen
from twinshore.config.errors import TooLargeError, UnsupportedError, messages
from twinshore.config.frozen import HOMES_TOPIC, LINE_VERSION, LINE_VERSION_KEY, PART_LINE, SWITCH_LINE
from twinshore.config.model import FIRST_TERM, TERM_MAX
from twinshore.config.sentences import join_names
from twinshore.kafka.protocol.primitives import (
    KEY_BYTES_MAX,
    VALUE_BYTES_MAX,
    encode_json,
    is_printable,
    parse_json,
    parse_json_or_none,
    to_printable,
)

PART_BYTES = 1 << 18
PARTS_MAX = 32
# Records of third parties must not fill the memory.
SWITCHES_MAX = 200
ENDED_SWITCHES_MAX = 10_000
RECORD_BYTES_MAX = PART_BYTES * PARTS_MAX
RECORDS_BYTES_MAX = 1 << 26
DIGEST_CHARS = 32
VERSIONS_MAX = 1 << 31

KeyValue = tuple[bytes, bytes | None]


class NewerLine(NamedTuple):
    """The value of a record whose version is above the one that this code reads."""

    version: int


def line_value(fields: Mapping[str, object]) -> bytes:
    """Encodes a record's value, with its version."""
    return encode_json({LINE_VERSION_KEY: LINE_VERSION, **fields})


def read_line(value: bytes | None, bytes_max: int = VALUE_BYTES_MAX) -> dict[str, Any] | NewerLine | None:
    """Returns what a record's value holds; None for a foreign form, since third parties may write to the topic. Every
    reader uses this function, so a newer record is interpreted nowhere.
    """
    found = parse_json_or_none(value, bytes_max)
    return versioned(found) if isinstance(found, dict) else None


def versioned(found: dict[str, Any]) -> dict[str, Any] | NewerLine | None:
    """As `read_line`, for JSON that is parsed already. The only place that judges a version."""
    version = found.get(LINE_VERSION_KEY, LINE_VERSION)
    if type(version) is not int or not 0 < version < VERSIONS_MAX:
        return None
    return NewerLine(version) if version > LINE_VERSION else found


def newer_in_words(topic: str, version: int, cluster: str = "") -> str:
    """Says why a topic's home is unknown."""
    return messages()["routing.newer-home"].text.format(topic=topic, version=version, place=homes_place(cluster))


def homes_place(cluster: str = "") -> str:
    return f"{HOMES_TOPIC} on {cluster}" if cluster else HOMES_TOPIC


def newer_hint() -> str:
    return messages()["routing.newer-home"].hint


@dataclass(frozen=True, slots=True)
class SwitchRecordHead:
    """Names a record's parts. `after`: the digest of the record that this one follows; empty for a switch's first."""

    digest: str
    parts: int
    after: str = ""

    def text(self) -> bytes:
        return line_value({"digest": self.digest, "parts": self.parts, "after": self.after})


@dataclass(slots=True)
class SwitchRecordLog:
    """The switch records of one cluster, as the log is read. `full`: there are more than are kept. A switch with a
    newer head has a record that this version cannot read and does not touch.
    """

    full: bool = False
    _newer: dict[str, int] = field(default_factory=dict)
    _heads: dict[str, SwitchRecordHead] = field(default_factory=dict)
    _gone: dict[str, None] = field(default_factory=dict)
    _behind: set[str] = field(default_factory=set)
    _parts: dict[tuple[str, str, int], bytes] = field(default_factory=dict)
    _bytes: int = 0

    def switches(self) -> list[str]:
        """Those that have a record."""
        return sorted({*self._heads, *self._newer})

    def is_newer(self, switch: str) -> bool:
        """Whether a newer version wrote the current record."""
        return switch in self._newer

    def digest(self, switch: str) -> str:
        """The digest of the current record; empty if there is none. An unreadable record has a digest that matches no
        other.
        """
        if switch in self._newer:
            return f"{LINE_VERSION_KEY}{self._newer[switch]}"
        head = self._heads.get(switch)
        return head.digest if head else ""

    def record(self, switch: str) -> dict[str, Any] | None:
        """What was saved last of the switch; None where nothing is, or where what is there is not whole."""
        head = self._heads.get(switch) if switch not in self._newer else None
        pieces = [self._parts.get((switch, head.digest, number)) for number in range(head.parts)] if head else []
        text = b"".join(piece for piece in pieces if piece is not None)
        if head is None or None in pieces or digest_of(text) != head.digest:
            return None
        found = parse_json(text, RECORD_BYTES_MAX)
        return found if isinstance(found, dict) else None

    def lines(self, switch: str, record: Mapping[str, Any]) -> list[KeyValue]:
        """Returns what to write, in order, to make `record` the current one; empty if it is.

        The earlier record stays whole until the last write. May raise TooLargeError.
        """
        text = encode_json(record)
        if len(text) > RECORD_BYTES_MAX:
            raise TooLargeError(f"the record of a switch has {len(text)} bytes: {RECORD_BYTES_MAX} are kept at most")
        digest, pieces = (
            digest_of(text),
            [text[start : start + PART_BYTES] for start in range(0, len(text), PART_BYTES)],
        )
        if self.digest(switch) == digest and self.record(switch) is not None:
            return []
        head = SwitchRecordHead(digest, len(pieces), self.digest(switch))
        parts = [(encode_json([PART_LINE, switch, digest, number]), piece) for number, piece in enumerate(pieces)]
        return [*parts, (encode_json([SWITCH_LINE, switch]), head.text())]

    def spent(self, switch: str) -> list[KeyValue]:
        """Returns tombstones for the parts of superseded records."""
        stands = self.digest(switch)
        if switch in self._newer:
            return []
        return [(encode_json([PART_LINE, *place]), None) for place in self._of(switch) if place[1] != stands]

    def tombstones(self, switch: str) -> list[KeyValue]:
        """The switch is history."""
        if switch in self._newer:
            return []
        head: list[KeyValue] = [(encode_json([SWITCH_LINE, switch]), None)] if switch in self._heads else []
        return head + [(encode_json([PART_LINE, *place]), None) for place in self._of(switch)]

    def mending(self) -> list[KeyValue]:
        """Returns current heads that compaction would lose, as a losing head follows in the log."""
        heads = ((switch, self._heads.get(switch)) for switch in sorted(self._behind))
        return [(encode_json([SWITCH_LINE, switch]), head.text() if head else None) for switch, head in heads]

    def take_head(self, switch: str, value: bytes | None) -> None:
        if value is None:
            self._heads.pop(switch, None)
            self._newer.pop(switch, None)
            self._behind.discard(switch)
            self._gone[switch] = None
            if len(self._gone) > ENDED_SWITCHES_MAX:
                del self._gone[next(iter(self._gone))]
            return
        head, there = _head(value), self._heads.get(switch)
        if head is None or switch in self._newer:
            return
        if isinstance(head, NewerLine):
            self._take_newer(switch, head.version)
            return
        if head == there:
            self._behind.discard(switch)
        elif (there and head.after != there.digest) or (there is None and switch in self._gone):
            self._behind.add(switch)
        elif there or len(self._heads) < SWITCHES_MAX:
            # The first head read may follow one that compaction removed.
            self._heads[switch] = head
            self._behind.discard(switch)
        else:
            self.full = True

    def _take_newer(self, switch: str, version: int) -> None:
        if len(self._newer) >= SWITCHES_MAX:
            self.full = True
            return
        self._newer[switch] = version
        self._behind.discard(switch)

    def take_part(self, place: tuple[str, str, int], value: bytes | None) -> None:
        if value is None:
            self._bytes -= len(self._parts.pop(place, b""))
        elif len(value) <= PART_BYTES:
            whole = self._bytes + len(value) - len(self._parts.get(place, b""))
            if whole > RECORDS_BYTES_MAX or len(self._parts) >= SWITCHES_MAX * PARTS_MAX:
                self.full = True
                return
            self._parts[place], self._bytes = value, whole

    def _of(self, switch: str) -> list[tuple[str, str, int]]:
        return [place for place in sorted(self._parts) if place[0] == switch]


def digest_of(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:DIGEST_CHARS]


def record_digest(record: Mapping[str, Any]) -> str:
    return digest_of(encode_json(record))


def _head(value: bytes) -> SwitchRecordHead | NewerLine | None:
    match found := read_line(value):
        case NewerLine():
            return found
        case {"digest": str(digest), "parts": int(parts), "after": str(after)} if (
            _is_digest(digest) and 0 < parts <= PARTS_MAX and (not after or _is_digest(after))
        ):
            return SwitchRecordHead(digest, parts, after)
        case _:
            return None


def _is_digest(text: str) -> bool:
    return len(text) == DIGEST_CHARS and set(text) <= set("0123456789abcdef")


IMPLAUSIBLE_SHOWN_MAX = 5
HOME_BYTES_MAX = 1 << 19
PARTITIONS_MAX = 20_000  # of one topic: each with a point of its own they still fit into a line
# Records of third parties must not fill the memory.
TOPICS_MAX = 200_000
CUTOVER_OFFSETS_MAX = 4_000_000
CLAIMS_MAX = 100
OFFSET_MAX = 1 << 62
STEP_MAX = 1 << 31
# No switch writes so far above the known version: a reader may have missed many, but not so many.
TERMS_AHEAD_MAX = 1_000
STEPS_AHEAD_MAX = 1 << 20
YEAR_9999_MS = 253_370_764_800_000
HOLD_MS_MAX = 86_400_000
TOPIC_NAME = re.compile("[a-zA-Z0-9._-]{1,249}")
HEX_ID = re.compile("[0-9a-f]{32}")
_WORDS = ("source", "set_by", "pair", "link", "back", "how")
PLANNED_SWITCH, FORCED_SWITCH = "planned", "forced"
_IDS = ("switch", "source_topic_id", "target_topic_id")
_NOT_TOLD = ("topic", "points", "hold_ms", "newer")

HomeVersion = tuple[int, int]


class HomeState(StrEnum):
    """ANNOUNCED: a switch has begun, and clients poll often. HELD: writers wait, for `hold_ms` at most."""

    SETTLED = "settled"
    ANNOUNCED = "announced"
    HELD = "held"


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeRecord:
    """The topic's home is `home`, the cluster `cluster_id`, in this term. Each step within the term is a new version.

    The rest lets a store apply the change itself. `source`: the home before. `link` replicated from there, `back` does
    now. `target_topic_id` and `source_topic_id`: on the new and the old home. `points`: below its point each
    partition's log on the old home is the topic's own. `how`: `PLANNED_SWITCH` moved all records. `hold_ms`: how long
    HELD counts (for groups ANNOUNCED too) after a reader reads the record; 0: until a higher version.

    `newer`: the `v` of a record that this version cannot read, 0 for a readable one. The home is then unknown: on no
    known cluster, in no known term, and nothing is written to the topic.
    """

    topic: str
    home: str
    cluster_id: str
    term: int
    step: int = 0
    state: HomeState = HomeState.SETTLED
    switch: str = ""
    source: str = ""
    since_ms: int = 0
    set_by: str = ""
    pair: str = ""
    link: str = ""
    back: str = ""
    source_topic_id: str = ""
    target_topic_id: str = ""
    points: tuple[int, ...] = ()
    how: str = ""
    hold_ms: int = 0
    newer: int = 0

    @property
    def word(self) -> HomeVersion:
        return self.term, self.step

    @property
    def ran_out(self) -> bool:
        """Whether a hold ended by time alone. The switch's write block may still keep writers out until removed."""
        return self.state is HomeState.SETTLED and self.hold_ms > 0

    @property
    def is_first(self) -> bool:
        """Whether no switch has had the topic: a mirror wrote the record."""
        return self.term == FIRST_TERM and not self.switch

    def agrees(self, other: HomeRecord) -> bool:
        """Whether both say the same, apart from writer, time and the cluster's name in settings."""
        return self == replace(other, home=self.home, since_ms=self.since_ms, set_by=self.set_by)

    def line(self) -> KeyValue:
        """TooLargeError where the topic has more partitions than a line can hold."""
        if self.newer:
            raise UnsupportedError("routing.newer-home", topic=self.topic, version=self.newer, place=homes_place())
        if len(self.points) > PARTITIONS_MAX:
            raise TooLargeError(f"topic {self.topic} has {len(self.points)} partitions: a line holds {PARTITIONS_MAX}")
        told = {name: getattr(self, name) for name in self.__slots__ if name not in _NOT_TOLD}
        hold = {"hold_ms": self.hold_ms} if self.hold_ms else {}
        return home_key(self.topic), line_value({**told, "points": _runs(self.points), **hold})


@dataclass(frozen=True, slots=True)
class HomeConflict:
    """Two clusters have different records of one version: the home is unknown until a higher version."""

    one: HomeRecord
    other: HomeRecord


@dataclass(frozen=True, slots=True)
class TopicClaim:
    """A switch's claim of a topic. `by` is for people."""

    switch: str
    since_ms: int
    by: str


def current_home(lines: Iterable[HomeRecord | None]) -> HomeRecord | HomeConflict | None:
    """Returns the current record among those of several clusters for one topic. An unreadable record may be above all
    others.
    """
    found = [record for record in lines if record is not None]
    if newer := next((record for record in found if record.newer), None):
        return newer
    highest_word = max((record.word for record in found), default=(0, 0))
    highest = [record for record in found if record.word == highest_word]
    other = next((record for record in highest if not record.agrees(highest[0])), None)
    return HomeConflict(highest[0], other) if other else highest[0] if highest else None


def is_implausible(record: HomeRecord, known: HomeVersion) -> bool:
    """Whether no switch would write this version, so far above the known one."""
    step = known[1] if record.term == known[0] else 0
    return record.term > known[0] + TERMS_AHEAD_MAX or record.step > step + STEPS_AHEAD_MAX


def describe_implausible(cluster: str, far: Iterable[HomeRecord]) -> str:
    records = sorted(far, key=lambda record: record.topic)
    sentences = [f"{record.topic} on {record.home} in term {record.term}" for record in records]
    named = join_names(sentences, IMPLAUSIBLE_SHOWN_MAX)
    above = f"{named}, more than {TERMS_AHEAD_MAX:,} terms above all that is known"
    remedy = f"find out who else may write to {HOMES_TOPIC} there"
    return f"{HOMES_TOPIC} on {cluster} says what no switch says: {above}. It is not believed: {remedy}"


@dataclass(slots=True)
class HomeLog:
    """One cluster's `twinshore.homes`. `homes`: current records by topic. `full`: the log exceeds the limits, so homes
    are unknown. `known`: returns a topic's highest term known from elsewhere. `far`: implausible records.
    """

    homes: dict[str, HomeRecord] = field(default_factory=dict)
    known: Callable[[str], int] = lambda _: 0
    far: dict[str, HomeRecord] = field(default_factory=dict)
    records: SwitchRecordLog = field(default_factory=SwitchRecordLog)
    full: bool = False
    _behind: set[str] = field(default_factory=set)
    _claims: dict[str, dict[str, TopicClaim]] = field(default_factory=dict)
    _points: int = 0

    def take(self, key: bytes | None, value: bytes | None) -> None:
        """Takes the log's next record; skips other forms."""
        match parse_json_or_none(key, KEY_BYTES_MAX):
            case [frozen.HOME_LINE, str(topic)] if TOPIC_NAME.fullmatch(topic):
                self._take_home(topic, value)
            case [frozen.CLAIM_LINE, str(topic), str(owner)] if TOPIC_NAME.fullmatch(topic) and HEX_ID.fullmatch(owner):
                self._take_claim(topic, owner, value)
            case [frozen.SWITCH_LINE, str(switch)] if HEX_ID.fullmatch(switch):
                self.records.take_head(switch, value)
            case [frozen.PART_LINE, str(switch), str(digest), int(number)] if (
                HEX_ID.fullmatch(switch) and HEX_ID.fullmatch(digest) and 0 <= number < PARTS_MAX
            ):
                self.records.take_part((switch, digest, number), value)
        self.full = self.full or self.records.full

    # -- homes

    def mending(self) -> list[KeyValue]:
        """Returns current records that compaction would lose, as a losing record follows in the log."""
        return [*(self.homes[topic].line() for topic in sorted(self._behind)), *self.records.mending()]

    def is_superseded(self, record: HomeRecord) -> bool:
        """Whether the record would lose or is current already. An unreadable record is never overwritten."""
        there = self.homes.get(record.topic)
        return there is not None and (there.newer > 0 or there.word >= record.word)

    def is_current(self, record: HomeRecord) -> bool:
        there = self.homes.get(record.topic)
        return there is not None and there.agrees(record)

    def _take_home(self, topic: str, value: bytes | None) -> None:
        record, there = _home(topic, value), self.homes.get(topic)
        if value is None:
            self._behind.discard(topic)
            self.far.pop(topic, None)
            self._points -= len(self.homes.pop(topic).points) if there else 0
        elif (record and record.newer) or (there and there.newer):
            self._take_newer(topic, record, there)
        elif record is not None and self._is_far(record, there):
            if topic in self.far or len(self.far) < TOPICS_MAX:
                self.far[topic] = record
            if there is not None:
                self._behind.add(topic)
        elif record is not None and (there is None or record.word > there.word):
            self.far.pop(topic, None)
            points = self._points + len(record.points) - (len(there.points) if there else 0)
            if points > CUTOVER_OFFSETS_MAX or (there is None and len(self.homes) >= TOPICS_MAX):
                self.full = True
                return
            self.homes[topic], self._points = record, points
            self._behind.discard(topic)
        elif there is not None:
            # The losing record is now the last in the log, unless this is the current one, written again.
            (self._behind.discard if record == there else self._behind.add)(topic)
            if record == there:
                self.far.pop(topic, None)

    def _take_newer(self, topic: str, record: HomeRecord | None, there: HomeRecord | None) -> None:
        """Keeps a newer record until a tombstone: later records may have lower versions."""
        if record is None or not record.newer:
            return
        if there is None and len(self.homes) >= TOPICS_MAX:
            self.full = True
            return
        self._points -= len(there.points) if there else 0
        self.homes[topic] = record
        self.far.pop(topic, None)
        self._behind.discard(topic)

    def _is_far(self, record: HomeRecord, there: HomeRecord | None) -> bool:
        word = there.word if there is not None else (0, 0)
        # `known` is asked only for a record that is implausible without it.
        return is_implausible(record, word) and is_implausible(record, max(word, (self.known(record.topic), 0)))

    def accept_plausible(self) -> None:
        """Takes `far` records that are plausible now."""
        for topic, record in list(self.far.items()):
            if not self._is_far(record, self.homes.get(topic)):
                self._take_home(topic, record.line()[1])

    # -- claims

    def holder(self, topic: str) -> TopicClaim | None:
        """Returns the claim that holds the topic; None without one."""
        return next(iter(self._claims.get(topic, {}).values()), None)

    def claimed(self, switch: str) -> list[str]:
        """Returns the topics that the switch claims, also behind another switch."""
        return sorted(topic for topic, claims in self._claims.items() if switch in claims)

    def switches(self) -> set[str]:
        """Returns all switches with claims."""
        return {switch for claims in self._claims.values() for switch in claims}

    def _take_claim(self, topic: str, switch: str, value: bytes | None) -> None:
        claim, there = _claim(switch, value), self._claims.get(topic, {})
        if claim is None:
            there.pop(switch, None)
            if not there:
                self._claims.pop(topic, None)
        elif len(there) >= CLAIMS_MAX or (not there and len(self._claims) >= TOPICS_MAX):
            self.full = self.full or switch not in there
        else:
            self._claims.setdefault(topic, there).setdefault(switch, claim)


def home_key(topic: str) -> bytes:
    return encode_json([frozen.HOME_LINE, topic])


def claim_record(topic: str, claim: TopicClaim) -> KeyValue:
    return encode_json([frozen.CLAIM_LINE, topic, claim.switch]), line_value(
        {"since_ms": claim.since_ms, "by": claim.by}
    )


def release_record(topic: str, switch: str) -> KeyValue:
    return encode_json([frozen.CLAIM_LINE, topic, switch]), None


def _runs(points: tuple[int, ...]) -> list[int | list[int]]:
    """Encodes equal neighbours as [count, point], and a single point as itself."""
    runs = [(point, len(list(some))) for point, some in groupby(points)]
    return [[count, point] if count > 1 else point for point, count in runs]


def _points(raw: list[Any]) -> tuple[int, ...] | None:
    found: list[int] = []
    for one in raw:
        match one:
            case int(point) if 0 <= point < OFFSET_MAX:
                found.append(point)
            case [int(count), int(point)] if 0 < count <= PARTITIONS_MAX and 0 <= point < OFFSET_MAX:
                found += [point] * count
            case _:
                return None
        if len(found) > PARTITIONS_MAX:
            return None
    return tuple(found)


def _home(topic: str, value: bytes | None) -> HomeRecord | None:
    match read_line(value, HOME_BYTES_MAX):
        case NewerLine(version):
            return HomeRecord(topic=topic, home="", cluster_id="", term=0, state=HomeState.HELD, newer=version)
        case {
            "home": str(home),
            "cluster_id": str(cluster_id),
            "term": int(term),
            "step": int(step),
            "state": "settled" | "announced" | "held" as state,
            "since_ms": int(since_ms),
            "points": list(raw),
            **more,
        } if 0 < term <= TERM_MAX and 0 <= step < STEP_MAX and 0 <= since_ms < YEAR_9999_MS:
            names = (*_WORDS, *_IDS)
            texts = {name: text for name in names if isinstance(text := more.get(name, ""), str)}
            points, hold_ms = _points(raw), more.get("hold_ms")
            if points is None or not home or not cluster_id or len(texts) < len(names):
                return None
            is_sound = all(is_printable(text) for text in (home, cluster_id, *(texts[name] for name in _WORDS)))
            if not is_sound or not all(_is_id(texts[name]) for name in _IDS):
                return None
            if not isinstance(hold_ms, int) or not 0 < hold_ms <= HOLD_MS_MAX:
                hold_ms = 0
            known: dict[str, Any] = {
                "term": term,
                "step": step,
                "since_ms": since_ms,
                "points": points,
                "hold_ms": hold_ms,
                **texts,
            }
            return HomeRecord(topic=topic, home=home, cluster_id=cluster_id, state=HomeState(state), **known)
        case _:
            return None


def _claim(switch: str, value: bytes | None) -> TopicClaim | None:
    match read_line(value):
        case NewerLine(version):  # whose the topic is its key says
            return TopicClaim(switch, 0, f"a newer version (v {version})")
        case {"since_ms": int(since_ms), "by": str(by)} if 0 <= since_ms < YEAR_9999_MS:
            return TopicClaim(switch, since_ms, to_printable(by))
        case _:
            return None


def _is_id(text: str) -> bool:
    return not text or HEX_ID.fullmatch(text) is not None


TWIN_RECORDS_MAX = 200_000


@dataclass(slots=True)
class TwinLog:
    """`ids` of twins, in hex, by their records' keys. `newer`: topics of unreadable records, by key; the ids of their
    twins are unknown.
    """

    ids: dict[bytes, str] = field(default_factory=dict)
    newer: dict[bytes, tuple[str, str]] = field(default_factory=dict)

    def take(self, key: bytes | None, value: bytes | None) -> None:
        """Takes the log's next record; skips other forms."""
        match parse_json_or_none(key, KEY_BYTES_MAX):
            case [frozen.TWIN_LINE, str(link), str(_), str(topic), int(_)] if key is not None:
                self._take(key, link, topic, value)

    def _take(self, key: bytes, link: str, topic: str, value: bytes | None) -> None:
        is_known = key in self.ids or key in self.newer
        room = is_known or len(self.ids) + len(self.newer) < TWIN_RECORDS_MAX
        for some in (self.ids, self.newer):
            some.pop(key, None)
        match read_line(value):
            case NewerLine() if room:
                self.newer[key] = link, topic
            case {"target": str(target)} if room and HEX_ID.fullmatch(target):
                self.ids[key] = target

    def may_be(self) -> frozenset[str]:
        """Names of twins whose records this version cannot read."""
        found = set()
        for link, topic in self.newer.values():
            found |= {topic, f"{link.partition('->')[0]}.{topic}"}
        return frozenset(found)

    def twins(self) -> frozenset[str]:
        return frozenset(self.ids.values())
