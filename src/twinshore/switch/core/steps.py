"""The steps of each kind of switch, the state of a switch as JSON, and the decision what comes next.

Every step may be repeated, and undone even if it ran in part or not at all: after a crash the next process begins with
the step that was under way. `COMMIT` is the point of no return: before it a switch can roll back, past it the switch
only goes on. A switch never reaches `COMMIT` once writers have waited for too long.

`SwitchState` is saved before and after each step. A process that resumes a switch needs it, and the write blocks in the
store. Many topics move in waves; each wave is a separate switch. The drawing in docs/switch.md is made from `STEPS`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from pydantic import TypeAdapter

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


class SwitchStep(StrEnum):
    spec: StepSpec

    def __new__(cls, value: str, spec: StepSpec) -> SwitchStep:
        step = str.__new__(cls, value)
        step._value_, step.spec = value, spec
        return step

    def sentence(self, *, done: bool) -> str:
        return f"{self.words}: {self.spec.does}" + (" (done)" if done else "")

    @property
    def words(self) -> str:
        """The step's name for people; the value is frozen."""
        return self.name.lower().replace("_", " ")

    CLAIM = "claim", StepSpec("claim what moves, so that no other switch moves it", "release the claims", patience_s=10)
    PREPARE = "prepare", StepSpec("check that the twins follow closely, and prove all but their tails", patience_s=600)
    CREATE_TOPICS = (
        "make",
        StepSpec("create missing topics on the new home, and fill them nearly to the old log ends", patience_s=600),
    )
    FILL_LOGS = "fill", StepSpec("fill the new logs to the old log ends", held=True)
    BEFORE = (
        "before",
        StepSpec("run the command `before`", "run `after`: the topics stay", patience_s=COMMAND_S_MAX + 60),
    )
    AFTER = "after", StepSpec("run the command `after` of the settings")
    ANNOUNCE = (
        "announce",
        StepSpec("announce the switch to clients that follow", "announce that the topics stay", patience_s=15),
    )
    HOLD = "hold", StepSpec("hold all writers", "let writers continue on the old home", held=True)
    DRAIN = "drain", StepSpec("wait until transactions have ended and the log ends stay the same", held=True)
    CATCH_UP = "level", StepSpec("wait until the twins are level", held=True)
    PROVE = "prove", StepSpec("prove the tails", held=True)
    STOP_REPLICATION = "let go", StepSpec("have the mirror stop replicating the topics", held=True)
    COMMIT = "commit", StepSpec("pass the point of no return", held=True)
    FENCE = "fence", StepSpec("fence late requests of the old link", held=True)
    APPLY_SETTINGS = "give", StepSpec("apply settings and rights on the new home", held=True)
    COPY_OFFSETS = "places", StepSpec("copy the committed offsets of groups", held=True)
    PROMOTE = "flip", StepSpec("announce the new home; writers continue there", held=True)
    START_REVERSE = "take up", StepSpec("check that the reverse link replicates the topics")
    ANNOUNCE_HOME = "tell", StepSpec("announce the topics' home on the old home")
    BLOCK_WRITES = "guard", StepSpec("keep all but the reverse link from writing on the old home")
    INSPECT = "look", StepSpec("find unreplicated records, once nothing more is written there", patience_s=600)
    RESCUE = "rescue", StepSpec("save unreplicated records on the new home", patience_s=86_400)
    REBUILD = "rebuild", StepSpec("delete the topics to refill, and have the mirror recreate them")
    REFILL = "refill", StepSpec("wait until the topics are refilled")
    CONTINUE_MAPPED = "go on", StepSpec("have twins continue after unreplicated records, with mapped offsets")
    RESTORE_OFFSETS = "put back", StepSpec("restore the committed offsets of groups there")
    WAIT_EMPTY = "leave", StepSpec("wait until the group has no members on its cluster", patience_s=600)
    WAIT_REPLICATED = "reach", StepSpec("wait until all that the group has read is on the other cluster")
    COMMIT_OFFSETS = "set", StepSpec("commit the group's offsets there", "restore these offsets", patience_s=15)
    LET_OFFSETS_FOLLOW = "follow", StepSpec("have committed offsets on twins follow the group again")
    RELEASE = "release", StepSpec("end the switch")


def _steps(names: str) -> tuple[SwitchStep, ...]:
    return tuple(SwitchStep[name] for name in names.split())


STEPS: Mapping[SwitchKind, tuple[SwitchStep, ...]] = {
    SwitchKind.PLANNED: _steps(
        "CLAIM PREPARE BEFORE ANNOUNCE HOLD DRAIN CATCH_UP PROVE STOP_REPLICATION COMMIT"
        " FENCE APPLY_SETTINGS COPY_OFFSETS PROMOTE AFTER START_REVERSE RELEASE"
    ),
    SwitchKind.FORCED: _steps(
        "CLAIM BEFORE STOP_REPLICATION CATCH_UP COMMIT FENCE APPLY_SETTINGS COPY_OFFSETS PROMOTE AFTER RELEASE"
    ),
    SwitchKind.DATALESS: _steps(
        "CLAIM BEFORE ANNOUNCE CREATE_TOPICS HOLD DRAIN FILL_LOGS COMMIT"
        " APPLY_SETTINGS PROMOTE AFTER BLOCK_WRITES RELEASE"
    ),
    SwitchKind.DRILL: _steps("PREPARE DRAIN CATCH_UP PROVE"),
    SwitchKind.FAILBACK: _steps(
        "CLAIM ANNOUNCE_HOME BLOCK_WRITES INSPECT RESCUE COMMIT REBUILD REFILL RESTORE_OFFSETS RELEASE"
    ),
    SwitchKind.MAPPED_FAILBACK: _steps(
        "CLAIM ANNOUNCE_HOME BLOCK_WRITES INSPECT RESCUE STOP_REPLICATION COMMIT"
        " CONTINUE_MAPPED LET_OFFSETS_FOLLOW RELEASE"
    ),
    SwitchKind.REBUILD: _steps("CLAIM STOP_REPLICATION INSPECT RESCUE COMMIT REBUILD REFILL RESTORE_OFFSETS RELEASE"),
    SwitchKind.GROUP: _steps(
        "CLAIM BEFORE WAIT_EMPTY WAIT_REPLICATED COMMIT_OFFSETS COMMIT LET_OFFSETS_FOLLOW AFTER RELEASE"
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
    return next((step for step in reversed(steps[: steps.index(switch_step) + 1]) if step.spec.undoes), None)


def next_undo_step(kind: SwitchKind, step: SwitchStep) -> SwitchStep | None:
    """Returns the step to undo after this one; None after the last."""
    at = STEPS[kind].index(step)
    return first_undo_step(kind, STEPS[kind][at - 1]) if at else None


HISTORY_MAX = 500
# Clusters keep states under these keys, which are frozen.
JSON_KEYS = {"step": "deed", "step_ms": "deed_ms", "history": "told", "foreign_writes": "strays"}
AFTER_COMMIT_S_MAX = 5.0  # what comes behind `commit` takes less, or the writers are held again
WAITS_FOR_STORE = "the store has more to apply: `twinshore switch resume`"


def switch_lease(switch: str) -> str:
    """The lease of the process that runs the switch."""
    return f"switch {switch}"


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
        goes_on = self.state in (SwitchStatus.RUNNING, SwitchStatus.DONE)
        return goes_on and is_past(self.kind, self.step, SwitchStep.COMMIT)

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
        return f"group {self.group}" if self.group else join_names(self.names())

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
        names = {key: name for name, key in JSON_KEYS.items()}
        try:
            state = _STATE_ADAPTER.validate_python(
                {names.get(key, key): value for key, value in json.loads(text).items()}
            )
            if state.step not in STEPS[state.kind]:
                raise ValueError(state.step)
        except (ValueError, AttributeError, RecursionError) as error:
            raise WireError("the record of a switch that cannot be read") from error
        return state


_STATE_ADAPTER = TypeAdapter(SwitchState)  # fields of another version are left out


def parse_switch_state(text: str) -> SwitchState | None:
    """Returns None if this version cannot read the row, so that one row does not block the others."""
    try:
        return SwitchState.from_json(text)
    except WireError:
        return None


def find_topics_moved_for_group(
    records: Iterable[SwitchState], group: str, topics: Iterable[str], cluster: str
) -> frozenset[str]:
    """Returns topics for which a group switch moved the group to `cluster`, and that have not moved since. `records`:
    all switches, newest first.
    """
    rest, found = set(topics), set[str]()
    for state in records:
        if state.state is not SwitchStatus.DONE:
            continue
        ours = rest.intersection(state.names())
        if state.kind is SwitchKind.GROUP and state.group == group:
            found |= ours if state.new == cluster else set()
            rest -= ours
        elif state.kind in MOVES_HOMES:
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
    for state in records:
        ours = rest.intersection(state.names())
        moves = state.kind in MOVES_HOMES and state.committed
        leaves = state.kind is SwitchKind.FORCED or state.unfollowed
        if moves and leaves and (state.old, state.new) == (old, new):
            found |= ours
        if moves or (state.kind in MAKES_TWINS and state.state is SwitchStatus.DONE and not state.unfollowed):
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


def begin_switch(state: SwitchState, now_ms: int) -> SwitchState:
    first = STEPS[state.kind][0]
    count = count_phrase(len(state.topics), "topic")
    told = f"{state.called('' if state.group else count)}, by {state.by}"
    return replace(state, step=first, step_ms=now_ms, state=SwitchStatus.RUNNING).tell(now_ms, told)


def apply_outcome(state: SwitchState, outcome: StepOutcome, now_ms: int) -> SwitchState:
    if state.ended:
        return state
    if isinstance(outcome, MustRollBack):
        return state if state.state is SwitchStatus.ROLLING_BACK else _back(state, outcome.sentence, now_ms)
    found = _kept(state, outcome)
    if state.state is SwitchStatus.ROLLING_BACK:
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
    return found if found.waits == waits else replace(found, waits=waits).tell(now_ms, f"{state.step.words}: {waits}")


def begin_rollback(state: SwitchState, why: str, now_ms: int) -> SwitchState:
    """Returns the state at the start of a rollback; unchanged past the point of no return."""
    if state.committed or state.ended or state.state is SwitchStatus.ROLLING_BACK:
        return state
    return _back(state, why, now_ms)


def repeat_hold(state: SwitchState, now_ms: int) -> SwitchState:
    """Returns the state for another process: back at `HOLD`, since a hold belongs to its process and may be over."""
    going = state.state is SwitchStatus.RUNNING and state.kind in HOLDS and not state.committed
    return replace(state, step=SwitchStep.HOLD, step_ms=now_ms) if going and state.step.spec.held else state


def _back(state: SwitchState, why: str, now_ms: int) -> SwitchState:
    back = replace(state, why=why, waits="").tell(now_ms, f"turns back: {why}")
    # A restarted switch may have run the operator's command before, which still has to be undone.
    step = SwitchStep.BEFORE if state.command and is_past(state.kind, SwitchStep.BEFORE, state.step) else state.step
    undo = first_undo_step(state.kind, step)
    if undo is None:
        return _turned_back(back, now_ms)
    return replace(back, state=SwitchStatus.ROLLING_BACK, step=undo, step_ms=now_ms)


def _kept(state: SwitchState, outcome: StepDone | StepPending | StepFailed) -> SwitchState:
    if outcome.state is None:
        return state
    return replace(outcome.state, step=state.step, state=state.state, step_ms=state.step_ms, held_ms=state.held_ms)


def _onward(state: SwitchState, sentence: str, now_ms: int) -> SwitchState:
    told = state.tell(now_ms, f"{state.step.words}: {sentence}") if sentence else state
    step = next_step(state.kind, state.step)
    if step is None:
        let_ms = state.let_write_ms or (now_ms if state.kind is SwitchKind.DRILL else 0)
        told = told.tell(now_ms, f"the {_noun(state)} is done")
        return replace(told, state=SwitchStatus.DONE, waits="", let_write_ms=let_ms)
    held_ms, let_ms = state.held_ms, state.let_write_ms
    if step.spec.held and not held_ms and state.kind not in NEVER_HOLDS:
        held_ms = now_ms  # before the first writer is held, so that the bound counts no less than they wait
    if state.step is SwitchStep.PROMOTE:
        let_ms = now_ms
    return replace(told, step=step, step_ms=now_ms, held_ms=held_ms, let_write_ms=let_ms, waits="")


def _turning(state: SwitchState, outcome: StepDone | StepPending | StepFailed, now_ms: int) -> SwitchState:
    """Advances a rollback. Failures do not end a rollback: held writers must be released."""
    if not isinstance(outcome, StepDone):
        waits = outcome.sentence
        if state.waits == waits:
            return state
        return replace(state, waits=waits).tell(now_ms, f"turning back, {state.step.words}: {waits}")
    told = state.tell(now_ms, f"undone, {state.step.words}: {outcome.sentence or state.step.spec.undoes}")
    if state.step is SwitchStep.HOLD:
        told = replace(told, let_write_ms=now_ms)
    undo = next_undo_step(state.kind, state.step)
    if undo is None:
        return _turned_back(told, now_ms)
    return replace(told, step=undo, step_ms=now_ms, waits="")


def _turned_back(state: SwitchState, now_ms: int) -> SwitchState:
    stays = f"group {state.group} stays on {state.old}" if state.group else "the topics keep their home"
    stays = "the twins are unchanged" if state.kind is SwitchKind.REBUILD else stays
    told = state.tell(now_ms, f"the {_noun(state)} has turned back; {stays}")
    return replace(told, state=SwitchStatus.ROLLED_BACK, waits="")


def _noun(state: SwitchState) -> str:
    return str(state.kind) if state.kind in (SwitchKind.REBUILD, SwitchKind.DRILL) else "switch"


def _late(state: SwitchState, now_ms: int) -> str:
    """Returns why the step took too long, or an empty string. A clock that went back counts as late."""
    duty = state.step.spec
    waited_s = (now_ms - state.step_ms) / 1000
    if not 0 <= waited_s <= duty.patience_s:
        return f"it took longer than {duty.patience_s:g} s to {duty.does}"
    return explain_hold_overrun(state, now_ms)


def explain_hold_overrun(state: SwitchState, now_ms: int) -> str:
    """Returns why the switch must roll back for writers that wait too long, or an empty string."""
    if state.committed or not state.held_ms or not state.step.spec.held or state.kind not in HOLDS:
        return ""
    held_s = (now_ms - state.held_ms) / 1000
    return "" if 0 <= held_s <= state.hold_s_max else f"writers would wait for longer than {state.hold_s_max:g} s"


Wave = tuple[str, ...]


def split_into_waves(topics: Iterable[str], together: Iterable[Iterable[str]], size: int) -> tuple[Wave, ...]:
    """Returns waves of at most `size` topics, ordered by name. Topics of one set in `together`, such as those of a
    group, share a wave, however large.
    """
    related = {topic: {topic} for topic in sorted(set(topics))}
    for names in together:
        merged = set[str]().union(*(related[name] for name in names if name in related))
        related.update(dict.fromkeys(merged, merged))
    waves: list[list[str]] = []
    for group in {id(group): group for group in related.values()}.values():
        if not waves or len(waves[-1]) + len(group) > size:
            waves.append([])
        waves[-1] += sorted(group)
    return tuple(map(tuple, waves))


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
        state, count = self.last, self.last.wave + len(self.left)
        begun = f"{self.id[:8]}  {self.done} of {count_phrase(count, 'wave')} done"
        begun += f", {count_phrase(len(self.moved), 'topic')} at home on {state.new}"
        topics = count_phrase(sum(len(wave) for wave in self.left), "topic")
        if state.state is SwitchStatus.ROLLED_BACK:
            return f"{begun}; wave {state.wave} turned back, {topics} behind it left on {state.old}"
        if not state.ended:
            return f"{begun}; wave {state.wave} is {state.state}, with {topics} behind it"
        if self.left:
            return f"{begun}; {topics} left: `twinshore switch resume` goes on"
        return begun


def find_wave_plans(records: Iterable[SwitchState]) -> list[WaveProgress]:
    """Returns plans of waves, newest first. `records`: all switches, newest first."""
    found: dict[str, WaveProgress] = {}
    for state in records:
        if not state.plan:
            continue
        known = found.setdefault(state.plan, WaveProgress(state.plan, state, 0, (), state.left))
        if state.state is SwitchStatus.DONE:
            found[state.plan] = replace(known, done=known.done + 1, moved=(*state.names(), *known.moved))
    return list(found.values())
