"""What is known of a switch while it runs and afterwards, as a value that travels as JSON. Pure.

The record is written to the store before each deed and after it. Whoever goes on needs it, and what the store
remembers of guards.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from twinshore.fleet import WireError
from twinshore.fleet.sentences import listed
from twinshore.store.switch_values import SwitchRow
from twinshore.switch.deeds import DEEDS, HOLDS, MAKES_TWINS, MOVES_HOMES, Deed, Kind, is_past

TOLD_MAX = 500
NAMED_MAX = 5
BEHIND_S = 5.0  # what comes behind `commit` takes less, or the writers are held again
WAITS = "the store gives what it remembers: `twinshore switch resume`"


class State(StrEnum):
    GOING = "going on"
    TURNING_BACK = "turning back"
    DONE = "done"
    TURNED_BACK = "turned back"


ENDED = frozenset({State.DONE, State.TURNED_BACK})


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A topic of a switch. `term`: of its home before the switch, 0 where no row said it. `points`: at which offset
    each partition changes homes, empty until the twins were level. `ends`: of the old home as last seen, for what a
    forced switch leaves behind. Topic ids are hex."""

    topic: str
    old_id: str
    new_id: str
    term: int
    partitions: int
    points: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Stray:
    """What others wrote behind the point of a partition: `read` up to this offset, and next up to `until`."""

    topic: str
    partition: int
    read: int
    until: int


@dataclass(frozen=True, slots=True)
class Told:
    """A sentence of the switch's history."""

    at_ms: int
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """`old` and `new` are the homes, `link` carried the topics from old to new, `back` is the link the other way.
    `deed` is under way since `deed_ms`, or to be undone where the switch turns back; `why` it does. `said`: the
    deed that last said a word of the topics' homes. `held_ms`: when the hold began, 0 before; `let_write_ms`: when
    it ended. `rights`: what was changed of the old home's ACLs, `given`: settings that the new home gets, by topic,
    both as JSON. Of a fail-back: `tails` are what the old home never sent and where it is saved, `places` where groups
    stood there, both as JSON; `folder` holds the files. Of a rebuild the same, and `points` are how far the home
    went when it was decided; `anyway`: also while somebody reads or writes there. Of a `group` that moves alone
    `places` are where it would stand, and `topics` what it reads. As the `wave`-th of a `plan`: the waves that are
    `left` after it. `kept`: the cluster that keeps the record, where the store does not answer; `awaits_store`: nothing
    is left to be done without the store; `late`: that is done now, when others may have set what the new home lacked.
    `command`: which of the settings' was begun last, or ended well; `unfinished`:
    how `after` failed. `unfollowed`: groups' own places on the old home were neither copied nor made to follow.
    `strays`: where others write on the new home before the fence is up. `why` of a drill that is done: a switch would
    have turned back. `waits`: what the deed
    waits for; `told` is the history."""

    id: str
    kind: Kind
    old: str
    new: str
    link: str
    back: str
    topics: tuple[Moved, ...]
    by: str
    begun_ms: int
    hold_s_max: float
    deed: Deed
    state: State = State.GOING
    deed_ms: int = 0
    held_ms: int = 0
    let_write_ms: int = 0
    said: str = ""
    rights: str = ""
    given: str = ""
    tails: str = ""
    places: str = ""
    folder: str = ""
    anyway: bool = False
    group: str = ""
    plan: str = ""
    wave: int = 0
    left: tuple[tuple[str, ...], ...] = ()
    kept: str = ""
    awaits_store: bool = False
    late: bool = False
    command: str = ""
    unfinished: str = ""
    unfollowed: bool = False
    strays: tuple[Stray, ...] = ()
    why: str = ""
    waits: str = ""
    told: tuple[Told, ...] = ()

    @property
    def committed(self) -> bool:
        """Whether the point of no return is past."""
        return self.state in (State.GOING, State.DONE) and is_past(self.kind, self.deed, Deed.COMMIT)

    @property
    def carrier(self) -> str:
        """The link that carries the topics when it begins; empty where a group alone moves."""
        if self.kind is Kind.GROUP:
            return ""
        return self.back if self.kind in MAKES_TWINS else self.link

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def holds_writers(self) -> bool:
        """Whether writers wait for it now, as far as the record tells."""
        return bool(self.held_ms) and not (self.let_write_ms or self.ended) and self.kind in HOLDS

    @property
    def held_s(self) -> float:
        """How long writers waited, of a drill how long they would have; 0 while it is not known. By force nobody is
        held, and the old home may be dead for long."""
        known = self.let_write_ms and self.held_ms and self.kind is not Kind.FORCED
        return (self.let_write_ms - self.held_ms) / 1000 if known else 0.0

    @property
    def writable_s(self) -> float:
        """Of a forced switch: how long after it was begun the new home took writes; 0 while it is not known."""
        known = self.let_write_ms and self.kind is Kind.FORCED
        return (self.let_write_ms - (self.told[0].at_ms if self.told else self.begun_ms)) / 1000 if known else 0.0

    @property
    def hold_ms(self) -> int:
        """How long a word that holds counts. Clients end it by themselves, so long after they heard it; `hold_s_max`
        bounds what comes before `commit`."""
        return int((self.hold_s_max + BEHIND_S) * 1000)

    def tried_for(self, ms: int, now_ms: int) -> bool:
        """Whether the deed is tried for so long. A clock that went back, as that of another host may, counts so too."""
        return not 0 <= now_ms - self.deed_ms < ms

    def names(self) -> tuple[str, ...]:
        return tuple(one.topic for one in self.topics)

    def moves(self) -> str:
        """What it moves, for people."""
        return f"group {self.group}" if self.group else listed(self.names(), NAMED_MAX)

    def called(self, moves: str = "") -> str:
        """The switch in a few words, from where to where; `moves`: what it moves, where that is not to be named."""
        what = moves or self.moves()
        if self.kind is Kind.REBUILD:
            return f"{self.kind} of {what} on {self.old} from {self.new}"
        if self.kind is Kind.FAILBACK:
            return f"{self.kind} of {what}: {self.old} is filled from {self.new}"
        if self.kind is Kind.MAPPED:
            return f"{self.kind} of {what}: {self.old} goes on with what {self.new} has"
        if self.group:
            return f"switch of {what} alone from {self.old} to {self.new}"
        return f"{self.kind} switch of {what} from {self.old} to {self.new}"

    def tell(self, at_ms: int, sentence: str) -> Record:
        """With this sentence in its history; the oldest go where there are too many."""
        return replace(self, told=(*self.told, Told(at_ms, sentence))[-TOLD_MAX:])

    def as_kept(self) -> Record:
        """As a cluster keeps it: what is done there waits for the store, which remembers more."""
        if self.state is not State.DONE:
            return self
        return replace(self, state=State.GOING, deed=Deed.GIVE, awaits_store=True, waits=WAITS)

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    def row(self, now_ms: int) -> SwitchRow:
        """As the store keeps it."""
        whose = (self.id, self.kind, self.old, self.new, self.state, self.to_json(), self.by)
        return SwitchRow(*whose, self.begun_ms, now_ms, now_ms if self.ended else None)

    @staticmethod
    def from_json(text: str) -> Record:
        """WireError where it is none: notes on clusters may be a stranger's."""
        try:
            raw: dict[str, Any] = json.loads(text)
            raw["kind"], raw["deed"], raw["state"] = Kind(raw["kind"]), Deed(raw["deed"]), State(raw["state"])
            raw["topics"] = tuple(_moved(one) for one in raw["topics"])
            raw["told"] = tuple(Told(int(one["at_ms"]), str(one["sentence"])) for one in raw["told"])
            raw["left"] = tuple(tuple(map(str, wave)) for wave in raw.get("left", ()))
            raw["strays"] = tuple(Stray(**one) for one in raw.get("strays", ()))
            # A row of another version may say more than this one knows.
            found = Record(**{name: value for name, value in raw.items() if name in Record.__slots__})
            if found.deed not in DEEDS[found.kind]:
                raise ValueError(found.deed)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise WireError("the record of a switch that cannot be read") from error
        return found


def readable(text: str) -> Record | None:
    """The record of a row; None where this version cannot read it: one row must not keep the others waiting."""
    try:
        return Record.from_json(text)
    except WireError:
        return None


def _moved(raw: dict[str, Any]) -> Moved:
    return Moved(**{**raw, "points": tuple(raw["points"]), "ends": tuple(raw["ends"])})


def alone_at(records: Iterable[Record], group: str, topics: Iterable[str], cluster: str) -> frozenset[str]:
    """Those of the topics that the group was moved to this cluster alone for, and that have not moved since. `records`:
    of all switches, the newest first."""
    rest, found = set(topics), set[str]()
    for one in records:
        if not rest:
            break
        if one.state is not State.DONE:
            continue
        ours = rest.intersection(one.names())
        if one.kind is Kind.GROUP and one.group == group:
            found |= ours if one.new == cluster else set()
            rest -= ours
        elif one.kind in MOVES_HOMES:
            rest -= ours
    return frozenset(found)


def left_by_force(records: Iterable[Record], topics: Iterable[str], old: str, new: str) -> frozenset[str]:
    """Those of the topics that a forced switch, or one whose old home died before groups were copied, moved from `old`
    to `new`, and that no switch has moved, or made twins on `old`, since. Where they are twins already somebody may
    read them there on his own, unless no group could be looked at then. `records`: of all switches, the newest
    first."""
    rest, found = set(topics), set()
    for one in records:
        ours = rest.intersection(one.names())
        moves = one.kind in MOVES_HOMES and one.committed
        leaves = one.kind is Kind.FORCED or one.unfollowed
        if moves and leaves and (one.old, one.new) == (old, new):
            found |= ours
        if moves or (one.kind in MAKES_TWINS and one.state is State.DONE and not one.unfollowed):
            rest -= ours
    return frozenset(found)
