"""What a switch does, deed by deed, as a table. Pure. The drawing in docs/switch.md is made from it.

Each deed may be done twice, and each that has an undo may be undone though it was done in part or not at all: whoever
goes on after a process was killed begins with the deed that was under way. `COMMIT` is the point of no return: before
it a switch can turn back, past it it goes on.

What is known of a switch while it runs and afterwards, as a value that travels as JSON. Pure.

The record is written to the store before each deed and after it. Whoever goes on needs it, and what the store
remembers of guards.

What a switch does next. Pure: the record and what came of its deed go in, the record as it is then comes out.

A command line, an API, a drill and a simulation call the same `after`. It never turns back past the point of no
return, and never goes on to it once writers have waited for longer than they may.

Many topics move in waves, each a separate switch: which topics go together, and what is left. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from twinshore.config.errors import WireError
from twinshore.config.sections.switch import COMMAND_S_MAX
from twinshore.config.sentences import counted, listed
from twinshore.state.core.values import SwitchRow


class Kind(StrEnum):
    """PLANNED: both clusters answer, and nothing is lost. FORCED: the old home does not answer. DRILL: a planned switch
    that looks, measures, and changes nothing. BARE: writers move to an empty log, which goes on where the old one ends;
    what is in that one stays there. FAILBACK: the old home of a forced switch is back; what it never sent is
    saved, and it becomes a twin. MAPPED: the same, but nothing is deleted, and twins go on behind it. REBUILD: a twin
    that is spoilt is filled anew, and the topic stays where it is at home. GROUP: one consumer
    group alone reads on at the other cluster; its topics stay."""

    PLANNED = "planned"
    FORCED = "forced"
    DRILL = "drill"
    BARE = "dataless"
    FAILBACK = "fail-back"
    MAPPED = "mapped fail-back"
    REBUILD = "rebuild"
    GROUP = "group"


class Deed(StrEnum):
    CLAIM = "claim"
    PREPARE = "prepare"
    MAKE = "make"
    FILL = "fill"
    ANNOUNCE = "announce"
    HOLD = "hold"
    DRAIN = "drain"
    LEVEL = "level"
    PROVE = "prove"
    LET_GO = "let go"
    COMMIT = "commit"
    FENCE = "fence"
    GIVE = "give"
    PLACES = "places"
    FLIP = "flip"
    TAKE_UP = "take up"
    TELL = "tell"
    GUARD = "guard"
    LOOK = "look"
    RESCUE = "rescue"
    REBUILD = "rebuild"
    REFILL = "refill"
    GO_ON = "go on"
    PUT_BACK = "put back"
    BEFORE = "before"
    AFTER = "after"
    LEAVE = "leave"
    REACH = "reach"
    SET = "set"
    FOLLOW = "follow"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class Duty:
    """A deed as people read it: `does`, and what turning back `undoes`, empty where there is nothing to undo.
    `held`: whether writers wait meanwhile. `patience_s`: how long it may take before the switch turns back; of deeds
    that writers wait for, the bound of the hold counts besides."""

    does: str
    undoes: str = ""
    held: bool = False
    patience_s: float = 60.0


DUTIES: Mapping[Deed, Duty] = {
    Deed.CLAIM: Duty(
        "claim what moves, so that no other switch moves it", "give it back; the mirror carries it again", patience_s=10
    ),
    Deed.PREPARE: Duty("see that the twins follow closely, and prove all but their tails", patience_s=600),
    Deed.MAKE: Duty(
        "make what is lacking on the new home, empty, and let it end nearly where the old one does", patience_s=600
    ),
    Deed.FILL: Duty("let the new logs end where the old ones do", held=True),
    Deed.BEFORE: Duty(
        "run the command `before` of the settings", "run `after`: it stays where it is", patience_s=COMMAND_S_MAX + 60
    ),
    Deed.AFTER: Duty("run the command `after` of the settings"),
    Deed.ANNOUNCE: Duty("announce the switch to those who follow homes", "say that the topics stay", patience_s=15),
    Deed.HOLD: Duty("hold all writers", "let the writers go on where they were", held=True),
    Deed.DRAIN: Duty("wait until open transactions have ended and the logs stand still", held=True),
    Deed.LEVEL: Duty("wait until the twins are level", held=True),
    Deed.PROVE: Duty("prove the tails", held=True),
    Deed.LET_GO: Duty("have the mirror let the topics go", held=True),
    Deed.COMMIT: Duty("decide: from here on the switch goes on", held=True),
    Deed.FENCE: Duty("shut out late requests of the old link", held=True),
    Deed.GIVE: Duty("give the new home its settings and rights", held=True),
    Deed.PLACES: Duty("copy the places of groups", held=True),
    Deed.FLIP: Duty("say where the topics are at home now; writers go on there", held=True),
    Deed.TAKE_UP: Duty("see that the link back carries the topics"),
    Deed.TELL: Duty("say on the old home where the topics are at home now"),
    Deed.GUARD: Duty("keep all but the link back from writing on the old home"),
    Deed.LOOK: Duty("see what never crossed, once nothing more is written there", patience_s=600),
    Deed.RESCUE: Duty("save what never crossed on the new home", patience_s=86_400),
    Deed.REBUILD: Duty("delete what is to be filled again, and have the mirror make it anew"),
    Deed.REFILL: Duty("wait until it is filled again"),
    Deed.PUT_BACK: Duty("put groups back where they stood there"),
    Deed.LEAVE: Duty("wait until the group has no members where it is", patience_s=600),
    Deed.REACH: Duty("wait until all that the group has read is on the other side too"),
    Deed.SET: Duty("set the group's places there", "set them back", patience_s=15),
    Deed.FOLLOW: Duty("have places that stay on twins follow the group again"),
    Deed.GO_ON: Duty("have twins go on behind what never crossed, at offsets of their own"),
    Deed.RELEASE: Duty("end the switch"),
}

DEEDS: Mapping[Kind, tuple[Deed, ...]] = {
    Kind.PLANNED: (
        *(Deed.CLAIM, Deed.PREPARE, Deed.BEFORE, Deed.ANNOUNCE, Deed.HOLD, Deed.DRAIN, Deed.LEVEL, Deed.PROVE),
        *(Deed.LET_GO, Deed.COMMIT),
        *(Deed.FENCE, Deed.GIVE, Deed.PLACES, Deed.FLIP, Deed.AFTER, Deed.TAKE_UP, Deed.RELEASE),
    ),
    Kind.FORCED: (
        *(Deed.CLAIM, Deed.BEFORE, Deed.LET_GO, Deed.LEVEL, Deed.COMMIT),
        *(Deed.FENCE, Deed.GIVE, Deed.PLACES, Deed.FLIP, Deed.AFTER, Deed.RELEASE),
    ),
    Kind.BARE: (
        *(Deed.CLAIM, Deed.BEFORE, Deed.ANNOUNCE, Deed.MAKE, Deed.HOLD, Deed.DRAIN, Deed.FILL, Deed.COMMIT),
        *(Deed.GIVE, Deed.FLIP, Deed.AFTER, Deed.GUARD, Deed.RELEASE),
    ),
    Kind.DRILL: (Deed.PREPARE, Deed.DRAIN, Deed.LEVEL, Deed.PROVE),
    Kind.FAILBACK: (
        *(Deed.CLAIM, Deed.TELL, Deed.GUARD, Deed.LOOK, Deed.RESCUE, Deed.COMMIT),
        *(Deed.REBUILD, Deed.REFILL, Deed.PUT_BACK, Deed.RELEASE),
    ),
    Kind.MAPPED: (
        *(Deed.CLAIM, Deed.TELL, Deed.GUARD, Deed.LOOK, Deed.RESCUE, Deed.LET_GO, Deed.COMMIT),
        *(Deed.GO_ON, Deed.FOLLOW, Deed.RELEASE),
    ),
    Kind.REBUILD: (
        *(Deed.CLAIM, Deed.LET_GO, Deed.LOOK, Deed.RESCUE, Deed.COMMIT),
        *(Deed.REBUILD, Deed.REFILL, Deed.PUT_BACK, Deed.RELEASE),
    ),
    Kind.GROUP: (
        *(Deed.CLAIM, Deed.BEFORE, Deed.LEAVE, Deed.REACH, Deed.SET, Deed.COMMIT),
        *(Deed.FOLLOW, Deed.AFTER, Deed.RELEASE),
    ),
}
# Of these the topics are at home on `new` in the end, and on `old` before.
MOVES_HOMES = frozenset({Kind.PLANNED, Kind.FORCED, Kind.BARE})
# Of these all writers are held on `old` meanwhile, so that nothing is lost of what they write.
HOLDS = frozenset({Kind.PLANNED, Kind.BARE})
# Of these the topics stay at home on `new`, and `old` is the cluster of their twins.
MAKES_TWINS = frozenset({Kind.FAILBACK, Kind.MAPPED, Kind.REBUILD})
# Nobody who writes waits for these.
UNHELD = MAKES_TWINS | {Kind.GROUP}


def is_past(kind: Kind, deed: Deed, other: Deed) -> bool:
    """Whether this deed comes after the other one."""
    deeds = DEEDS[kind]
    return other in deeds and deeds.index(deed) > deeds.index(other)


def following(kind: Kind, deed: Deed) -> Deed | None:
    """The next deed; None after the last."""
    deeds = DEEDS[kind]
    at = deeds.index(deed) + 1
    return deeds[at] if at < len(deeds) else None


def to_undo(kind: Kind, deed: Deed) -> Deed | None:
    """The deed to be undone next where this one was the last to be begun; None where nothing is left to undo."""
    deeds = DEEDS[kind]
    return next((one for one in reversed(deeds[: deeds.index(deed) + 1]) if DUTIES[one].undoes), None)


def next_undo(kind: Kind, deed: Deed) -> Deed | None:
    """The deed to be undone after this one; None where it was the last."""
    at = DEEDS[kind].index(deed)
    return to_undo(kind, DEEDS[kind][at - 1]) if at else None


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
class SwitchState:
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

    def tell(self, at_ms: int, sentence: str) -> SwitchState:
        """With this sentence in its history; the oldest go where there are too many."""
        return replace(self, told=(*self.told, Told(at_ms, sentence))[-TOLD_MAX:])

    def as_kept(self) -> SwitchState:
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
    def from_json(text: str) -> SwitchState:
        """WireError where it is none: notes on clusters may be a stranger's."""
        try:
            raw: dict[str, Any] = json.loads(text)
            raw["kind"], raw["deed"], raw["state"] = Kind(raw["kind"]), Deed(raw["deed"]), State(raw["state"])
            raw["topics"] = tuple(_moved(one) for one in raw["topics"])
            raw["told"] = tuple(Told(int(one["at_ms"]), str(one["sentence"])) for one in raw["told"])
            raw["left"] = tuple(tuple(map(str, wave)) for wave in raw.get("left", ()))
            raw["strays"] = tuple(Stray(**one) for one in raw.get("strays", ()))
            # A row of another version may say more than this one knows.
            found = SwitchState(**{name: value for name, value in raw.items() if name in SwitchState.__slots__})
            if found.deed not in DEEDS[found.kind]:
                raise ValueError(found.deed)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise WireError("the record of a switch that cannot be read") from error
        return found


def readable(text: str) -> SwitchState | None:
    """The record of a row; None where this version cannot read it: one row must not keep the others waiting."""
    try:
        return SwitchState.from_json(text)
    except WireError:
        return None


def _moved(raw: dict[str, Any]) -> Moved:
    return Moved(**{**raw, "points": tuple(raw["points"]), "ends": tuple(raw["ends"])})


def alone_at(records: Iterable[SwitchState], group: str, topics: Iterable[str], cluster: str) -> frozenset[str]:
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


def left_by_force(records: Iterable[SwitchState], topics: Iterable[str], old: str, new: str) -> frozenset[str]:
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


@dataclass(frozen=True, slots=True)
class Done:
    """The deed is done, or undone. `record`: with what it found; its deed and state are this module's to change."""

    record: SwitchState
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class Wait:
    """Not yet; to be tried again soon. `record` keeps what was found on the way. `unanswered`: something does not
    answer and is asked more seldom."""

    sentence: str
    record: SwitchState | None = None
    unanswered: bool = False


@dataclass(frozen=True, slots=True)
class Cannot:
    """It will not be, however long one waits."""

    sentence: str
    record: SwitchState | None = None


@dataclass(frozen=True, slots=True)
class Back:
    """It must turn back, also behind its point of no return: the topics have not moved, and writers went on."""

    sentence: str
    record: SwitchState | None = None


Outcome = Done | Wait | Cannot | Back


def begin(record: SwitchState, now_ms: int) -> SwitchState:
    """At its first deed."""
    first = DEEDS[record.kind][0]
    count = counted(len(record.topics), "topic")
    told = f"{record.called('' if record.group else count)}, by {record.by}"
    return replace(record, deed=first, deed_ms=now_ms, state=State.GOING).tell(now_ms, told)


def after(record: SwitchState, outcome: Outcome, now_ms: int) -> SwitchState:
    """The record once this came of its deed."""
    if record.ended:
        return record
    if isinstance(outcome, Back):
        return record if record.state is State.TURNING_BACK else _back(record, outcome.sentence, now_ms)
    found = _kept(record, outcome)
    if record.state is State.TURNING_BACK:
        return _turning(found, outcome, now_ms)
    if isinstance(outcome, Done):
        if late := too_long_held(found, now_ms):
            return turn_back(found, late, now_ms)
        return _onward(found, outcome.sentence, now_ms)
    if not found.committed:
        if isinstance(outcome, Cannot):
            return turn_back(found, outcome.sentence, now_ms)
        if late := _late(found, now_ms):
            return turn_back(found, f"{late}: {outcome.sentence}", now_ms)
    waits = outcome.sentence
    return found if found.waits == waits else replace(found, waits=waits).tell(now_ms, f"{record.deed}: {waits}")


def turn_back(record: SwitchState, why: str, now_ms: int) -> SwitchState:
    """On its way back. Past the point of no return it is left as it is."""
    if record.committed or record.ended or record.state is State.TURNING_BACK:
        return record
    return _back(record, why, now_ms)


def held_anew(record: SwitchState, now_ms: int) -> SwitchState:
    """For whoever goes on with what another process began: a hold is that process's own, and may have run out."""
    going = record.state is State.GOING and record.kind in HOLDS and not record.committed
    return replace(record, deed=Deed.HOLD, deed_ms=now_ms) if going and DUTIES[record.deed].held else record


def _back(record: SwitchState, why: str, now_ms: int) -> SwitchState:
    back = replace(record, why=why, waits="").tell(now_ms, f"turns back: {why}")
    # One that began anew may have run the operator's command before, whose end is owed all the same.
    deed = Deed.BEFORE if record.command and is_past(record.kind, Deed.BEFORE, record.deed) else record.deed
    undo = to_undo(record.kind, deed)
    if undo is None:
        return _turned_back(back, now_ms)
    return replace(back, state=State.TURNING_BACK, deed=undo, deed_ms=now_ms)


def _kept(record: SwitchState, outcome: Done | Wait | Cannot) -> SwitchState:
    """What the deed found; what is this module's stays as it was."""
    if outcome.record is None:
        return record
    mine = {"deed": record.deed, "state": record.state, "deed_ms": record.deed_ms, "held_ms": record.held_ms}
    return replace(outcome.record, **mine)  # type: ignore[arg-type]


def _onward(record: SwitchState, sentence: str, now_ms: int) -> SwitchState:
    told = record.tell(now_ms, f"{record.deed}: {sentence}") if sentence else record
    deed = following(record.kind, record.deed)
    if deed is None:
        let_ms = now_ms if record.kind is Kind.DRILL else record.let_write_ms
        return replace(told, state=State.DONE, waits="", let_write_ms=let_ms).tell(
            now_ms, f"the {_noun(record)} is done"
        )
    held_ms, let_ms = record.held_ms, record.let_write_ms
    if DUTIES[deed].held and not held_ms and record.kind not in UNHELD:
        held_ms = now_ms  # before the first writer is held, so that the bound counts no less than they wait
    if record.deed is Deed.FLIP:
        let_ms = now_ms
    return replace(told, deed=deed, deed_ms=now_ms, held_ms=held_ms, let_write_ms=let_ms, waits="")


def _turning(record: SwitchState, outcome: Done | Wait | Cannot, now_ms: int) -> SwitchState:
    """Nothing ends the way back but its end: whoever was held must be let go."""
    if not isinstance(outcome, Done):
        waits = outcome.sentence
        if record.waits == waits:
            return record
        return replace(record, waits=waits).tell(now_ms, f"turning back, {record.deed}: {waits}")
    told = record.tell(now_ms, f"undone, {record.deed}: {outcome.sentence or DUTIES[record.deed].undoes}")
    if record.deed is Deed.HOLD:
        told = replace(told, let_write_ms=now_ms)
    undo = next_undo(record.kind, record.deed)
    if undo is None:
        return _turned_back(told, now_ms)
    return replace(told, deed=undo, deed_ms=now_ms, waits="")


def _turned_back(record: SwitchState, now_ms: int) -> SwitchState:
    stays = "the twins are as they were" if record.kind is Kind.REBUILD else "the topics are at home where they were"
    if record.group:
        stays = f"group {record.group} stays on {record.old}"
    told = record.tell(now_ms, f"the {_noun(record)} has turned back; {stays}")
    return replace(told, state=State.TURNED_BACK, waits="")


def _noun(record: SwitchState) -> str:
    return str(record.kind) if record.kind in (Kind.REBUILD, Kind.DRILL) else "switch"


def _late(record: SwitchState, now_ms: int) -> str:
    """Why it has taken too long; empty where it has not. A clock that went back counts as late."""
    duty = DUTIES[record.deed]
    waited_s = (now_ms - record.deed_ms) / 1000
    if not 0 <= waited_s <= duty.patience_s:
        return f"it took longer than {duty.patience_s:g} s to {duty.does}"
    return too_long_held(record, now_ms)


def too_long_held(record: SwitchState, now_ms: int) -> str:
    """Why the switch must turn back, as writers wait too long; empty where they may wait, or it cannot."""
    if record.committed or not record.held_ms or not DUTIES[record.deed].held or record.kind not in HOLDS:
        return ""
    held_s = (now_ms - record.held_ms) / 1000
    return "" if 0 <= held_s <= record.hold_s_max else f"writers would wait for longer than {record.hold_s_max:g} s"


Wave = tuple[str, ...]


def waves_of(topics: Iterable[str], together: Iterable[Iterable[str]], size: int) -> tuple[Wave, ...]:
    """In the order of names. Topics of one of the sets `together`, such as those of a group, are in one wave, also
    where that makes it larger than `size`."""
    leader = {topic: topic for topic in sorted(set(topics))}

    def led_by(topic: str) -> str:
        while leader[topic] != topic:
            leader[topic] = leader[leader[topic]]
            topic = leader[topic]
        return topic

    for some in together:
        known = sorted(topic for topic in set(some) if topic in leader)
        for topic in known[1:]:
            first, other = sorted((led_by(known[0]), led_by(topic)))
            leader[other] = first
    flocks: dict[str, list[str]] = {}
    for topic in leader:
        flocks.setdefault(led_by(topic), []).append(topic)
    waves: list[Wave] = []
    open_wave: list[str] = []
    for flock in flocks.values():
        if open_wave and len(open_wave) + len(flock) > size:
            waves.append(tuple(open_wave))
            open_wave = []
        open_wave += flock
    return (*waves, tuple(open_wave)) if open_wave else tuple(waves)


@dataclass(frozen=True, slots=True)
class Waves:
    """A plan of waves as its switches tell it, newest of them `last`: what moved, what fell, what is left."""

    id: str
    last: SwitchState
    done: int
    moved: Wave
    left: tuple[Wave, ...]

    @property
    def over(self) -> bool:
        """Whether nothing is to be gone on with: all is done, or a wave has turned back."""
        return self.last.ended and (not self.left or self.last.state is State.TURNED_BACK)

    def sentence(self) -> str:
        """How far it has come."""
        one, count = self.last, self.last.wave + len(self.left)
        begun = f"{self.id[:8]}  {self.done} of {counted(count, 'wave')} done"
        begun += f", {counted(len(self.moved), 'topic')} at home on {one.new}"
        topics = counted(sum(len(wave) for wave in self.left), "topic")
        if one.state is State.TURNED_BACK:
            return f"{begun}; wave {one.wave} turned back, {topics} behind it left on {one.old}"
        if not one.ended:
            return f"{begun}; wave {one.wave} is {one.state}, with {topics} behind it"
        if self.left:
            return f"{begun}; {topics} left: `twinshore switch resume` goes on"
        return begun


def plans_in(records: Iterable[SwitchState]) -> list[Waves]:
    """Of all switches, the newest first, those that are waves; the newest plan first."""
    found: dict[str, Waves] = {}
    for one in records:
        if not one.plan:
            continue
        known = found.setdefault(one.plan, Waves(one.plan, one, 0, (), one.left))
        if one.state is State.DONE:
            found[one.plan] = replace(known, done=known.done + 1, moved=(*one.names(), *known.moved))
    return list(found.values())


def as_wave(record: SwitchState, plan: str, number: int, left: Sequence[Wave]) -> SwitchState:
    """This switch as a wave of the plan; `left` come behind it."""
    return replace(record, plan=plan, wave=number, left=tuple(left))
