"""Groups moved at an operator's word: one round at once, with or without steps backwards."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from twinshore.fleet import KafkaError, Link, NamedPartition
from twinshore.fleet.settings import Settings
from twinshore.groups.look import GroupView, look
from twinshore.groups.place import MARK, State
from twinshore.groups.rounds import Rounds
from twinshore.groups.scope import Scope
from twinshore.groups.sides import Side
from twinshore.kafka.cluster import KafkaCluster, OffsetKind
from twinshore.kafka.errors import describe
from twinshore.store import AuditRow, Store
from twinshore.wire.group_places import Place, Where

TRIES_MAX = 5
AGAIN_S = 0.5
UNANSWERED = -1  # as brokers call an error without a name
DONE, NOT_DONE, REFUSED = "done", "not done", "refused"


@dataclass(frozen=True, slots=True)
class Step:
    """A place that was, or would be, committed."""

    link: str
    cluster: str
    group: str
    topic: str
    partition: int
    before: int | None
    after: int
    outcome: str

    @property
    def refused(self) -> bool:
        """Asked for, and not done as far as is known."""
        return self.outcome.startswith(REFUSED)

    def __str__(self) -> str:
        was = "no place" if self.before is None else str(self.before)
        place = f"{self.topic}-{self.partition} on {self.cluster}"
        return f"{self.link}: group {self.group}: {place}: {was} -> {self.after} ({self.outcome})"


def move(
    link: Link, settings: Settings, store: Store, pattern: str, *, back: bool, lower: bool, act: bool
) -> Iterator[Step]:
    """The steps, done when `act`; each is in the audit by the time it is given out."""
    rounds = Rounds(link, settings, store, retention_s=1.0)
    try:
        writer = rounds.at_source if back else rounds.at_target
        rounds.begin(time.monotonic())
        for view in look(link, settings, store, pattern):
            if (view.source_state if back else view.target_state) not in ("Empty", "Dead", "none"):
                continue
            forward = wishes_forward(view, MARK if link.groups.marks else "")
            wishes = wishes_back(view, rounds.scope, _ends(rounds.source, view)) if back else forward
            wishes = {w: (has, to) for w, (has, to) in wishes.items() if has is None or to.offset > has or lower}
            if wishes and act:
                yield from moved(store, writer, link.name, view.group, wishes)
            else:
                yield from _steps(link.name, writer.name, view.group, wishes, dict.fromkeys(wishes, NOT_DONE))
    finally:
        rounds.close()


# Each place to commit, with the one that is there now.
Wishes = dict[Where, tuple[int | None, Place]]


def wishes_forward(view: GroupView, note: str) -> Wishes:
    """What the target's places would become: the source's, within the twins. `note`: what tells the mirror that they
    are to follow again."""
    found: Wishes = {}
    for part in view.parts:
        goal = None if part.source is None or part.state == State.UNKNOWN else part.within
        if goal is not None and goal != part.target:
            found[(part.twin, part.partition)] = (part.target, Place(goal, note))
    return found


def wishes_back(view: GroupView, scope: Scope, ends: Mapping[Where, int]) -> Wishes:
    """What the source's places would become: the target's, within the source's logs. A group that has read records on
    the target which others wrote behind the twin's end goes on at the source's end, not beyond it."""
    found: Wishes = {}
    for part in view.parts:
        where = (part.topic, part.partition)
        spot = scope.parts[where][1].back(part.target) if part.target is not None and where in scope.parts else None
        if spot is None or where not in ends:
            continue
        goal = min(spot.offset, ends[where])
        if goal != part.source:
            found[where] = (part.source, Place(goal))
    return found


def moved(store: Store, writer: Side, link: str, group: str, wishes: Wishes) -> list[Step]:
    """Commits one group's places and writes to the audit what came of each, before anything else is begun."""
    try:
        codes = _commit(writer, group, wishes)
        outcomes = {where: _outcome(codes.get(where, UNANSWERED)) for where in wishes}
    except KafkaError as error:
        outcomes = dict.fromkeys(wishes, f"{REFUSED}: {error.message}")
    steps = _steps(link, writer.name, group, wishes, outcomes)
    now_ms = int(time.time() * 1000)
    store.add_audit(
        [
            AuditRow(
                now_ms,
                link,
                "group",
                f"{step.group} {step.topic}-{step.partition} on {step.cluster}",
                "" if step.before is None else str(step.before),
                str(step.after),
                step.outcome,
            )
            for step in steps
        ]
    )
    return steps


def _ends(source: KafkaCluster, view: GroupView) -> dict[Where, int]:
    named = [NamedPartition(part.topic, part.partition) for part in view.parts]
    found = source.list_offsets(named, OffsetKind.HIGH_WATERMARK) if named else {}
    return {(one.topic, one.partition): end for one, end in found.items()}


def _commit(writer: Side, group: str, wishes: Wishes) -> dict[Where, int]:
    for number in range(TRIES_MAX):
        if number:
            time.sleep(AGAIN_S)
        nodes, refused = writer.located([group])
        if group in refused:
            raise refused[group]
        if group in nodes:
            answer = writer.commit({nodes[group]: {group: {where: place for where, (_, place) in wishes.items()}}})
            if group in answer:
                return answer[group]
    raise KafkaError(f"{writer.name}: group {group} has no coordinator that answers", retriable=True)


def _steps(link: str, cluster: str, group: str, wishes: Wishes, outcomes: Mapping[Where, str]) -> list[Step]:
    return [
        Step(link, cluster, group, *where, has, place.offset, outcomes[where]) for where, (has, place) in wishes.items()
    ]


def _outcome(code: int) -> str:
    return f"{REFUSED}: {describe(code).sentence}" if code else DONE
