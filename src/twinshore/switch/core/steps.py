"""The steps of each kind of switch, the state of a switch as JSON, and the decision what comes next.

Every step may be repeated, and undone even if it ran in part or not at all: after a crash the next process begins with
the step that was under way. `COMMIT` is the point of no return: before it a switch can roll back, past it the switch
only goes on. A switch never reaches `COMMIT` once writers have waited for too long.

`SwitchState` is saved before and after each step. A process that resumes a switch needs it, and the write blocks in the
store. Many topics move in waves; each wave is a separate switch. The drawing in docs/switch.md is made from `STEPS`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from twinshore.config.errors import WireError
from twinshore.config.sections.switch import COMMAND_S_MAX
from twinshore.config.sentences import count_phrase, join_names
from twinshore.state.core.values import SwitchRow


class SwitchKind(StrEnum):
    """PLANNED: both clusters answer, and nothing is lost. FORCED: the old home does not answer. DRILL: a planned switch
    that only checks and measures. DATALESS: writers move to an empty log, which begins at the end offset of the old
    one. FAILBACK: the old home of a forced switch is back; unreplicated records are rescued, and its topics become
    twins. MAPPED_FAILBACK: the same, but nothing is deleted, and twins continue with mapped offsets. REBUILD: a spoilt
    twin is refilled. GROUP: one consumer group moves; its topics stay.
    """

    PLANNED = "planned"
    FORCED = "forced"
    DRILL = "drill"
    DATALESS = "dataless"
    FAILBACK = "fail-back"
    MAPPED_FAILBACK = "mapped fail-back"
    REBUILD = "rebuild"
    GROUP = "group"


class SwitchStep(StrEnum):
    CLAIM = "claim"
    PREPARE = "prepare"
    CREATE_TOPICS = "make"
    FILL_LOGS = "fill"
    ANNOUNCE = "announce"
    HOLD = "hold"
    DRAIN = "drain"
    CATCH_UP = "level"
    PROVE = "prove"
    STOP_REPLICATION = "let go"
    COMMIT = "commit"
    FENCE = "fence"
    APPLY_SETTINGS = "give"
    COPY_OFFSETS = "places"
    PROMOTE = "flip"
    START_REVERSE = "take up"
    ANNOUNCE_HOME = "tell"
    BLOCK_WRITES = "guard"
    INSPECT = "look"
    RESCUE = "rescue"
    REBUILD = "rebuild"
    REFILL = "refill"
    CONTINUE_MAPPED = "go on"
    RESTORE_OFFSETS = "put back"
    BEFORE = "before"
    AFTER = "after"
    WAIT_EMPTY = "leave"
    WAIT_REPLICATED = "reach"
    COMMIT_OFFSETS = "set"
    LET_OFFSETS_FOLLOW = "follow"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class StepSpec:
    """What a step `does` and what a rollback `undoes` (empty: nothing), in words.

    `held`: writers wait during the step. `patience_s`: how long the step may take before the switch rolls back; if
    writers wait, the limit of the hold applies as well.
    """

    does: str
    undoes: str = ""
    held: bool = False
    patience_s: float = 60.0


STEP_SPECS: Mapping[SwitchStep, StepSpec] = {
    SwitchStep.CLAIM: StepSpec(
        "claim what moves, so that no other switch moves it", "give it back; the mirror carries it again", patience_s=10
    ),
    SwitchStep.PREPARE: StepSpec("see that the twins follow closely, and prove all but their tails", patience_s=600),
    SwitchStep.CREATE_TOPICS: StepSpec(
        "make what is lacking on the new home, empty, and let it end nearly where the old one does", patience_s=600
    ),
    SwitchStep.FILL_LOGS: StepSpec("let the new logs end where the old ones do", held=True),
    SwitchStep.BEFORE: StepSpec(
        "run the command `before` of the settings", "run `after`: it stays where it is", patience_s=COMMAND_S_MAX + 60
    ),
    SwitchStep.AFTER: StepSpec("run the command `after` of the settings"),
    SwitchStep.ANNOUNCE: StepSpec(
        "announce the switch to those who follow homes", "say that the topics stay", patience_s=15
    ),
    SwitchStep.HOLD: StepSpec("hold all writers", "let the writers go on where they were", held=True),
    SwitchStep.DRAIN: StepSpec("wait until open transactions have ended and the logs stand still", held=True),
    SwitchStep.CATCH_UP: StepSpec("wait until the twins are level", held=True),
    SwitchStep.PROVE: StepSpec("prove the tails", held=True),
    SwitchStep.STOP_REPLICATION: StepSpec("have the mirror let the topics go", held=True),
    SwitchStep.COMMIT: StepSpec("decide: from here on the switch goes on", held=True),
    SwitchStep.FENCE: StepSpec("shut out late requests of the old link", held=True),
    SwitchStep.APPLY_SETTINGS: StepSpec("give the new home its settings and rights", held=True),
    SwitchStep.COPY_OFFSETS: StepSpec("copy the places of groups", held=True),
    SwitchStep.PROMOTE: StepSpec("say where the topics are at home now; writers go on there", held=True),
    SwitchStep.START_REVERSE: StepSpec("see that the link back carries the topics"),
    SwitchStep.ANNOUNCE_HOME: StepSpec("say on the old home where the topics are at home now"),
    SwitchStep.BLOCK_WRITES: StepSpec("keep all but the link back from writing on the old home"),
    SwitchStep.INSPECT: StepSpec("see what never crossed, once nothing more is written there", patience_s=600),
    SwitchStep.RESCUE: StepSpec("save what never crossed on the new home", patience_s=86_400),
    SwitchStep.REBUILD: StepSpec("delete what is to be filled again, and have the mirror make it anew"),
    SwitchStep.REFILL: StepSpec("wait until it is filled again"),
    SwitchStep.RESTORE_OFFSETS: StepSpec("put groups back where they stood there"),
    SwitchStep.WAIT_EMPTY: StepSpec("wait until the group has no members where it is", patience_s=600),
    SwitchStep.WAIT_REPLICATED: StepSpec("wait until all that the group has read is on the other side too"),
    SwitchStep.COMMIT_OFFSETS: StepSpec("set the group's places there", "set them back", patience_s=15),
    SwitchStep.LET_OFFSETS_FOLLOW: StepSpec("have places that stay on twins follow the group again"),
    SwitchStep.CONTINUE_MAPPED: StepSpec("have twins go on behind what never crossed, at offsets of their own"),
    SwitchStep.RELEASE: StepSpec("end the switch"),
}

STEPS: Mapping[SwitchKind, tuple[SwitchStep, ...]] = {
    SwitchKind.PLANNED: (
        *(
            SwitchStep.CLAIM,
            SwitchStep.PREPARE,
            SwitchStep.BEFORE,
            SwitchStep.ANNOUNCE,
            SwitchStep.HOLD,
            SwitchStep.DRAIN,
            SwitchStep.CATCH_UP,
            SwitchStep.PROVE,
        ),
        *(SwitchStep.STOP_REPLICATION, SwitchStep.COMMIT),
        *(
            SwitchStep.FENCE,
            SwitchStep.APPLY_SETTINGS,
            SwitchStep.COPY_OFFSETS,
            SwitchStep.PROMOTE,
            SwitchStep.AFTER,
            SwitchStep.START_REVERSE,
            SwitchStep.RELEASE,
        ),
    ),
    SwitchKind.FORCED: (
        *(SwitchStep.CLAIM, SwitchStep.BEFORE, SwitchStep.STOP_REPLICATION, SwitchStep.CATCH_UP, SwitchStep.COMMIT),
        *(
            SwitchStep.FENCE,
            SwitchStep.APPLY_SETTINGS,
            SwitchStep.COPY_OFFSETS,
            SwitchStep.PROMOTE,
            SwitchStep.AFTER,
            SwitchStep.RELEASE,
        ),
    ),
    SwitchKind.DATALESS: (
        *(
            SwitchStep.CLAIM,
            SwitchStep.BEFORE,
            SwitchStep.ANNOUNCE,
            SwitchStep.CREATE_TOPICS,
            SwitchStep.HOLD,
            SwitchStep.DRAIN,
            SwitchStep.FILL_LOGS,
            SwitchStep.COMMIT,
        ),
        *(SwitchStep.APPLY_SETTINGS, SwitchStep.PROMOTE, SwitchStep.AFTER, SwitchStep.BLOCK_WRITES, SwitchStep.RELEASE),
    ),
    SwitchKind.DRILL: (SwitchStep.PREPARE, SwitchStep.DRAIN, SwitchStep.CATCH_UP, SwitchStep.PROVE),
    SwitchKind.FAILBACK: (
        *(
            SwitchStep.CLAIM,
            SwitchStep.ANNOUNCE_HOME,
            SwitchStep.BLOCK_WRITES,
            SwitchStep.INSPECT,
            SwitchStep.RESCUE,
            SwitchStep.COMMIT,
        ),
        *(SwitchStep.REBUILD, SwitchStep.REFILL, SwitchStep.RESTORE_OFFSETS, SwitchStep.RELEASE),
    ),
    SwitchKind.MAPPED_FAILBACK: (
        *(
            SwitchStep.CLAIM,
            SwitchStep.ANNOUNCE_HOME,
            SwitchStep.BLOCK_WRITES,
            SwitchStep.INSPECT,
            SwitchStep.RESCUE,
            SwitchStep.STOP_REPLICATION,
            SwitchStep.COMMIT,
        ),
        *(SwitchStep.CONTINUE_MAPPED, SwitchStep.LET_OFFSETS_FOLLOW, SwitchStep.RELEASE),
    ),
    SwitchKind.REBUILD: (
        *(SwitchStep.CLAIM, SwitchStep.STOP_REPLICATION, SwitchStep.INSPECT, SwitchStep.RESCUE, SwitchStep.COMMIT),
        *(SwitchStep.REBUILD, SwitchStep.REFILL, SwitchStep.RESTORE_OFFSETS, SwitchStep.RELEASE),
    ),
    SwitchKind.GROUP: (
        *(
            SwitchStep.CLAIM,
            SwitchStep.BEFORE,
            SwitchStep.WAIT_EMPTY,
            SwitchStep.WAIT_REPLICATED,
            SwitchStep.COMMIT_OFFSETS,
            SwitchStep.COMMIT,
        ),
        *(SwitchStep.LET_OFFSETS_FOLLOW, SwitchStep.AFTER, SwitchStep.RELEASE),
    ),
}
# These move the homes of topics from `old` to `new`.
MOVES_HOMES = frozenset({SwitchKind.PLANNED, SwitchKind.FORCED, SwitchKind.DATALESS})
# These hold all writers on `old`, so that no write is lost.
HOLDS = frozenset({SwitchKind.PLANNED, SwitchKind.DATALESS})
# With these the topics stay at home on `new`, and `old` is the cluster of their twins.
MAKES_TWINS = frozenset({SwitchKind.FAILBACK, SwitchKind.MAPPED_FAILBACK, SwitchKind.REBUILD})
# No writer waits for these.
NEVER_HOLDS = MAKES_TWINS | {SwitchKind.GROUP}


def is_past(kind: SwitchKind, step: SwitchStep, other: SwitchStep) -> bool:
    steps = STEPS[kind]
    return other in steps and steps.index(step) > steps.index(other)


def next_step(kind: SwitchKind, step: SwitchStep) -> SwitchStep | None:
    """Returns the next step; None after the last."""
    steps = STEPS[kind]
    at = steps.index(step) + 1
    return steps[at] if at < len(steps) else None


def first_undo_step(kind: SwitchKind, switch_step: SwitchStep) -> SwitchStep | None:
    """Returns the step to undo first if `switch_step` was the last to begin; None if there is none."""
    steps = STEPS[kind]
    return next((step for step in reversed(steps[: steps.index(switch_step) + 1]) if STEP_SPECS[step].undoes), None)


def next_undo_step(kind: SwitchKind, step: SwitchStep) -> SwitchStep | None:
    """Returns the step to undo after this one; None after the last."""
    at = STEPS[kind].index(step)
    return first_undo_step(kind, STEPS[kind][at - 1]) if at else None


HISTORY_MAX = 500
# Clusters keep states under these keys, which are frozen.
JSON_KEYS = {"step": "deed", "step_ms": "deed_ms", "history": "told", "foreign_writes": "strays"}
NAMED_MAX = 5
AFTER_COMMIT_S_MAX = 5.0  # what comes behind `commit` takes less, or the writers are held again
WAITS_FOR_STORE = "the store gives what it remembers: `twinshore switch resume`"


class SwitchStatus(StrEnum):
    RUNNING = "going on"
    ROLLING_BACK = "turning back"
    DONE = "done"
    ROLLED_BACK = "turned back"


ENDED_STATUSES = frozenset({SwitchStatus.DONE, SwitchStatus.ROLLED_BACK})


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMove:
    """A topic of a switch. Topic ids are hex.

    `term`: of the home before the switch; 0 if no row had one. `points`: where each partition changes homes; empty
    until the twins were level. `ends`: last known log ends of the old home.
    """

    topic: str
    old_id: str
    new_id: str
    term: int
    partitions: int
    points: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ForeignWrites:
    """Foreign writes past the point of a partition: scanned up to `read`, next up to `until`."""

    topic: str
    partition: int
    read: int
    until: int


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    at_ms: int
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchState:
    """A switch, during its run and afterwards.

    `old`, `new`: the homes. `link` replicates from old to new, `back` in reverse. `step`: the step under way since
    `step_ms`, or to undo during a rollback. `why`: the reason of the rollback; of a finished drill, why a switch would
    have rolled back. `waits`: what the step waits for. `history`: what happened. `said`: the step that last
    announced the homes.

    `held_ms`: start of the hold, 0 before. `let_write_ms`: its end. `rights` (JSON): changes of the old home's ACLs.
    `given` (JSON): settings for the new home, by topic. `command`: the configured command that last began, or ended
    well. `unfinished`: how the command `after` failed. `unfollowed`: committed offsets on the old home were neither
    copied nor synced. `foreign_writes`: on the new home before the fence.

    Fail-back and rebuild: `tails` (JSON): unreplicated records and where they were rescued; `places` (JSON): offsets of
    groups; `folder`: of the files. Rebuild: `points` are the log ends of the home at the decision; `anyway`: even if
    clients read or write there. Group switch: `places` are the group's new offsets, `topics` those it reads.

    `wave`: number of this switch within `plan`; `left`: the waves after this one. `kept`: the cluster that keeps this
    state while the store is down. `awaits_store`: only work that needs the store is left. `late`: that work runs now;
    in between, users may have set what the new home lacked.
    """

    id: str
    kind: SwitchKind
    old: str
    new: str
    link: str
    back: str
    topics: tuple[TopicMove, ...]
    by: str
    begun_ms: int
    hold_s_max: float
    step: SwitchStep
    state: SwitchStatus = SwitchStatus.RUNNING
    step_ms: int = 0
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
    foreign_writes: tuple[ForeignWrites, ...] = ()
    why: str = ""
    waits: str = ""
    history: tuple[HistoryEntry, ...] = ()

    @property
    def committed(self) -> bool:
        return self.state in (SwitchStatus.RUNNING, SwitchStatus.DONE) and is_past(
            self.kind, self.step, SwitchStep.COMMIT
        )

    @property
    def carrier(self) -> str:
        """The link that replicates the topics when the switch begins; empty for a group switch."""
        if self.kind is SwitchKind.GROUP:
            return ""
        return self.back if self.kind in MAKES_TWINS else self.link

    @property
    def ended(self) -> bool:
        return self.state in ENDED_STATUSES

    @property
    def holds_writers(self) -> bool:
        """Returns whether writers are held now, as far as this state tells."""
        return bool(self.held_ms) and not (self.let_write_ms or self.ended) and self.kind in HOLDS

    @property
    def held_s(self) -> float:
        """Seconds that writers waited (a drill: would have waited); 0 if unknown, and for a forced switch."""
        known = self.let_write_ms and self.held_ms and self.kind is not SwitchKind.FORCED
        return (self.let_write_ms - self.held_ms) / 1000 if known else 0.0

    @property
    def writable_s(self) -> float:
        """Forced switch: seconds from its start until the new home took writes; 0 if unknown."""
        known = self.let_write_ms and self.kind is SwitchKind.FORCED
        return (self.let_write_ms - (self.history[0].at_ms if self.history else self.begun_ms)) / 1000 if known else 0.0

    @property
    def hold_ms(self) -> int:
        """How long a home record holds writers: clients end the hold by themselves that long after they read it.
        `hold_s_max` limits the time before `commit`.
        """
        return int((self.hold_s_max + AFTER_COMMIT_S_MAX) * 1000)

    def tried_for(self, ms: int, now_ms: int) -> bool:
        """Returns whether the step has been tried for `ms`; yes if the clock is behind, as another host's may be."""
        return not 0 <= now_ms - self.step_ms < ms

    def names(self) -> tuple[str, ...]:
        return tuple(move.topic for move in self.topics)

    def moves(self) -> str:
        return f"group {self.group}" if self.group else join_names(self.names(), NAMED_MAX)

    def called(self, moves: str = "") -> str:
        """`moves`: replaces the names of what is moved."""
        what = moves or self.moves()
        if self.kind is SwitchKind.REBUILD:
            return f"{self.kind} of {what} on {self.old} from {self.new}"
        if self.kind is SwitchKind.FAILBACK:
            return f"{self.kind} of {what}: {self.old} is filled from {self.new}"
        if self.kind is SwitchKind.MAPPED_FAILBACK:
            return f"{self.kind} of {what}: {self.old} goes on with what {self.new} has"
        if self.group:
            return f"switch of {what} alone from {self.old} to {self.new}"
        return f"{self.kind} switch of {what} from {self.old} to {self.new}"

    def tell(self, at_ms: int, sentence: str) -> SwitchState:
        """Adds a sentence to the history, and drops the oldest beyond `HISTORY_MAX`."""
        return replace(self, history=(*self.history, HistoryEntry(at_ms, sentence))[-HISTORY_MAX:])

    def as_kept(self) -> SwitchState:
        """Returns the state for a cluster to keep. A switch done there still awaits the store, which knows more."""
        if self.state is not SwitchStatus.DONE:
            return self
        return replace(
            self, state=SwitchStatus.RUNNING, step=SwitchStep.APPLY_SETTINGS, awaits_store=True, waits=WAITS_FOR_STORE
        )

    def to_json(self) -> str:
        values = {JSON_KEYS.get(name, name): value for name, value in asdict(self).items()}
        return json.dumps(values, separators=(",", ":"))

    def row(self, now_ms: int) -> SwitchRow:
        whose = (self.id, self.kind, self.old, self.new, self.state, self.to_json(), self.by)
        return SwitchRow(*whose, self.begun_ms, now_ms, now_ms if self.ended else None)

    @staticmethod
    def from_json(text: str) -> SwitchState:
        """Raises WireError if the text is invalid: state records on clusters may be foreign."""
        try:
            kept: dict[str, Any] = json.loads(text)
            raw = {name: kept[key] for name in SwitchState.__slots__ if (key := JSON_KEYS.get(name, name)) in kept}
            raw["kind"], raw["step"] = SwitchKind(raw["kind"]), SwitchStep(raw["step"])
            raw["state"] = SwitchStatus(raw["state"])
            raw["topics"] = tuple(_moved(topic) for topic in raw["topics"])
            raw["history"] = tuple(HistoryEntry(int(one["at_ms"]), str(one["sentence"])) for one in raw["history"])
            raw["left"] = tuple(tuple(map(str, wave)) for wave in raw.get("left", ()))
            raw["foreign_writes"] = tuple(ForeignWrites(**one) for one in raw.get("foreign_writes", ()))
            found = SwitchState(**raw)  # a row of another version may have more fields
            if found.step not in STEPS[found.kind]:
                raise ValueError(found.step)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise WireError("the record of a switch that cannot be read") from error
        return found


def parse_switch_state(text: str) -> SwitchState | None:
    """Returns None if this version cannot read the row, so that one row does not block the others."""
    try:
        return SwitchState.from_json(text)
    except WireError:
        return None


def _moved(raw: dict[str, Any]) -> TopicMove:
    return TopicMove(**{**raw, "points": tuple(raw["points"]), "ends": tuple(raw["ends"])})


def find_topics_moved_for_group(
    records: Iterable[SwitchState], group: str, topics: Iterable[str], cluster: str
) -> frozenset[str]:
    """Returns topics for which a group switch moved the group to `cluster`, and that have not moved since. `records`:
    all switches, newest first.
    """
    rest, found = set(topics), set[str]()
    for switch_state in records:
        if not rest:
            break
        if switch_state.state is not SwitchStatus.DONE:
            continue
        ours = rest.intersection(switch_state.names())
        if switch_state.kind is SwitchKind.GROUP and switch_state.group == group:
            found |= ours if switch_state.new == cluster else set()
            rest -= ours
        elif switch_state.kind in MOVES_HOMES:
            rest -= ours
    return frozenset(found)


def find_topics_left_by_force(
    records: Iterable[SwitchState], topics: Iterable[str], old: str, new: str
) -> frozenset[str]:
    """Returns topics that a forced switch moved from `old` to `new`, and that have not moved since. `records`: all
    switches, newest first.

    A switch whose old home died before offsets were copied counts as forced. A later switch that made twins on `old`
    ends this, unless groups could not be checked then: clients may read these twins on their own.
    """
    rest, found = set(topics), set()
    for switch_state in records:
        ours = rest.intersection(switch_state.names())
        moves = switch_state.kind in MOVES_HOMES and switch_state.committed
        leaves = switch_state.kind is SwitchKind.FORCED or switch_state.unfollowed
        if moves and leaves and (switch_state.old, switch_state.new) == (old, new):
            found |= ours
        if moves or (
            switch_state.kind in MAKES_TWINS and switch_state.state is SwitchStatus.DONE and not switch_state.unfollowed
        ):
            rest -= ours
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class StepDone:
    """The step is done, or undone. `record`: with what the step found; only this module changes `step` and `state`."""

    state: SwitchState
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class StepPending:
    """Not done yet; retry soon. `record`: with what was found so far. `unanswered`: a cluster or store does not answer,
    so retry less often.
    """

    sentence: str
    state: SwitchState | None = None
    unanswered: bool = False


@dataclass(frozen=True, slots=True)
class StepFailed:
    """The step cannot succeed, and waiting does not help."""

    sentence: str
    state: SwitchState | None = None


@dataclass(frozen=True, slots=True)
class MustRollBack:
    """Roll back, even past the point of no return: the topics have not moved, and writers have continued."""

    sentence: str
    state: SwitchState | None = None


StepOutcome = StepDone | StepPending | StepFailed | MustRollBack


def begin_switch(switch_state: SwitchState, now_ms: int) -> SwitchState:
    first = STEPS[switch_state.kind][0]
    count = count_phrase(len(switch_state.topics), "topic")
    told = f"{switch_state.called('' if switch_state.group else count)}, by {switch_state.by}"
    return replace(switch_state, step=first, step_ms=now_ms, state=SwitchStatus.RUNNING).tell(now_ms, told)


def apply_outcome(switch_state: SwitchState, outcome: StepOutcome, now_ms: int) -> SwitchState:
    if switch_state.ended:
        return switch_state
    if isinstance(outcome, MustRollBack):
        return (
            switch_state
            if switch_state.state is SwitchStatus.ROLLING_BACK
            else _back(switch_state, outcome.sentence, now_ms)
        )
    found = _kept(switch_state, outcome)
    if switch_state.state is SwitchStatus.ROLLING_BACK:
        return _turning(found, outcome, now_ms)
    if isinstance(outcome, StepDone):
        if late := explain_hold_overrun(found, now_ms):
            return begin_rollback(found, late, now_ms)
        return _onward(found, outcome.sentence, now_ms)
    if not found.committed:
        if isinstance(outcome, StepFailed):
            return begin_rollback(found, outcome.sentence, now_ms)
        if late := _late(found, now_ms):
            return begin_rollback(found, f"{late}: {outcome.sentence}", now_ms)
    waits = outcome.sentence
    return found if found.waits == waits else replace(found, waits=waits).tell(now_ms, f"{switch_state.step}: {waits}")


def begin_rollback(switch_state: SwitchState, why: str, now_ms: int) -> SwitchState:
    """Returns the state at the start of a rollback; unchanged past the point of no return."""
    if switch_state.committed or switch_state.ended or switch_state.state is SwitchStatus.ROLLING_BACK:
        return switch_state
    return _back(switch_state, why, now_ms)


def repeat_hold(switch_state: SwitchState, now_ms: int) -> SwitchState:
    """Returns the state for another process: back at `HOLD`, since a hold belongs to its process and may be over."""
    going = switch_state.state is SwitchStatus.RUNNING and switch_state.kind in HOLDS and not switch_state.committed
    return (
        replace(switch_state, step=SwitchStep.HOLD, step_ms=now_ms)
        if going and STEP_SPECS[switch_state.step].held
        else switch_state
    )


def _back(switch_state: SwitchState, why: str, now_ms: int) -> SwitchState:
    back = replace(switch_state, why=why, waits="").tell(now_ms, f"turns back: {why}")
    # A restarted switch may have run the operator's command before, which still has to be undone.
    step = (
        SwitchStep.BEFORE
        if switch_state.command and is_past(switch_state.kind, SwitchStep.BEFORE, switch_state.step)
        else switch_state.step
    )
    undo = first_undo_step(switch_state.kind, step)
    if undo is None:
        return _turned_back(back, now_ms)
    return replace(back, state=SwitchStatus.ROLLING_BACK, step=undo, step_ms=now_ms)


def _kept(switch_state: SwitchState, outcome: StepDone | StepPending | StepFailed) -> SwitchState:
    if outcome.state is None:
        return switch_state
    mine = {
        "step": switch_state.step,
        "state": switch_state.state,
        "step_ms": switch_state.step_ms,
        "held_ms": switch_state.held_ms,
    }
    return replace(outcome.state, **mine)  # type: ignore[arg-type]


def _onward(switch_state: SwitchState, sentence: str, now_ms: int) -> SwitchState:
    told = switch_state.tell(now_ms, f"{switch_state.step}: {sentence}") if sentence else switch_state
    step = next_step(switch_state.kind, switch_state.step)
    if step is None:
        let_ms = now_ms if switch_state.kind is SwitchKind.DRILL else switch_state.let_write_ms
        return replace(told, state=SwitchStatus.DONE, waits="", let_write_ms=let_ms).tell(
            now_ms, f"the {_noun(switch_state)} is done"
        )
    held_ms, let_ms = switch_state.held_ms, switch_state.let_write_ms
    if STEP_SPECS[step].held and not held_ms and switch_state.kind not in NEVER_HOLDS:
        held_ms = now_ms  # before the first writer is held, so that the bound counts no less than they wait
    if switch_state.step is SwitchStep.PROMOTE:
        let_ms = now_ms
    return replace(told, step=step, step_ms=now_ms, held_ms=held_ms, let_write_ms=let_ms, waits="")


def _turning(switch_state: SwitchState, outcome: StepDone | StepPending | StepFailed, now_ms: int) -> SwitchState:
    """Advances a rollback. Failures do not end a rollback: held writers must be released."""
    if not isinstance(outcome, StepDone):
        waits = outcome.sentence
        if switch_state.waits == waits:
            return switch_state
        return replace(switch_state, waits=waits).tell(now_ms, f"turning back, {switch_state.step}: {waits}")
    told = switch_state.tell(
        now_ms, f"undone, {switch_state.step}: {outcome.sentence or STEP_SPECS[switch_state.step].undoes}"
    )
    if switch_state.step is SwitchStep.HOLD:
        told = replace(told, let_write_ms=now_ms)
    undo = next_undo_step(switch_state.kind, switch_state.step)
    if undo is None:
        return _turned_back(told, now_ms)
    return replace(told, step=undo, step_ms=now_ms, waits="")


def _turned_back(switch_state: SwitchState, now_ms: int) -> SwitchState:
    stays = (
        "the twins are as they were"
        if switch_state.kind is SwitchKind.REBUILD
        else "the topics are at home where they were"
    )
    if switch_state.group:
        stays = f"group {switch_state.group} stays on {switch_state.old}"
    told = switch_state.tell(now_ms, f"the {_noun(switch_state)} has turned back; {stays}")
    return replace(told, state=SwitchStatus.ROLLED_BACK, waits="")


def _noun(switch_state: SwitchState) -> str:
    return str(switch_state.kind) if switch_state.kind in (SwitchKind.REBUILD, SwitchKind.DRILL) else "switch"


def _late(switch_state: SwitchState, now_ms: int) -> str:
    """Returns why the step took too long, or an empty string. A clock that went back counts as late."""
    duty = STEP_SPECS[switch_state.step]
    waited_s = (now_ms - switch_state.step_ms) / 1000
    if not 0 <= waited_s <= duty.patience_s:
        return f"it took longer than {duty.patience_s:g} s to {duty.does}"
    return explain_hold_overrun(switch_state, now_ms)


def explain_hold_overrun(switch_state: SwitchState, now_ms: int) -> str:
    """Returns why the switch must roll back for writers that wait too long, or an empty string."""
    if (
        switch_state.committed
        or not switch_state.held_ms
        or not STEP_SPECS[switch_state.step].held
        or switch_state.kind not in HOLDS
    ):
        return ""
    held_s = (now_ms - switch_state.held_ms) / 1000
    return (
        ""
        if 0 <= held_s <= switch_state.hold_s_max
        else f"writers would wait for longer than {switch_state.hold_s_max:g} s"
    )


Wave = tuple[str, ...]


def split_into_waves(topics: Iterable[str], together: Iterable[Iterable[str]], size: int) -> tuple[Wave, ...]:
    """Returns waves of at most `size` topics, ordered by name. Topics of one set in `together`, such as those of a
    group, share a wave, however large.
    """
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
class WaveProgress:
    """A plan of waves: `last` is the newest switch, `done` the number of finished ones, `left` the waves to come."""

    id: str
    last: SwitchState
    done: int
    moved: Wave
    left: tuple[Wave, ...]

    @property
    def over(self) -> bool:
        """Returns whether nothing can be resumed: all waves are done, or one has rolled back."""
        return self.last.ended and (not self.left or self.last.state is SwitchStatus.ROLLED_BACK)

    def sentence(self) -> str:
        switch_state, count = self.last, self.last.wave + len(self.left)
        begun = f"{self.id[:8]}  {self.done} of {count_phrase(count, 'wave')} done"
        begun += f", {count_phrase(len(self.moved), 'topic')} at home on {switch_state.new}"
        topics = count_phrase(sum(len(wave) for wave in self.left), "topic")
        if switch_state.state is SwitchStatus.ROLLED_BACK:
            return f"{begun}; wave {switch_state.wave} turned back, {topics} behind it left on {switch_state.old}"
        if not switch_state.ended:
            return f"{begun}; wave {switch_state.wave} is {switch_state.state}, with {topics} behind it"
        if self.left:
            return f"{begun}; {topics} left: `twinshore switch resume` goes on"
        return begun


def find_wave_plans(records: Iterable[SwitchState]) -> list[WaveProgress]:
    """Returns plans of waves, newest first. `records`: all switches, newest first."""
    found: dict[str, WaveProgress] = {}
    for switch_state in records:
        if not switch_state.plan:
            continue
        known = found.setdefault(
            switch_state.plan, WaveProgress(switch_state.plan, switch_state, 0, (), switch_state.left)
        )
        if switch_state.state is SwitchStatus.DONE:
            found[switch_state.plan] = replace(known, done=known.done + 1, moved=(*switch_state.names(), *known.moved))
    return list(found.values())


def as_wave(switch_state: SwitchState, plan: str, number: int, left: Sequence[Wave]) -> SwitchState:
    """Returns the switch as wave `number` of the plan; `left` are the waves after it."""
    return replace(switch_state, plan=plan, wave=number, left=tuple(left))
