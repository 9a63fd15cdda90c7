"""Groups moved at an operator's word: one round at once, with or without steps backwards."""

from __future__ import annotations

import time
from dataclasses import dataclass

from twinshore.fleet import KafkaError, Link
from twinshore.fleet.settings import Settings
from twinshore.groups.look import GroupView, look
from twinshore.groups.place import State
from twinshore.groups.rounds import Rounds
from twinshore.kafka.errors import describe
from twinshore.kafka.groups import Groups
from twinshore.store import AuditRow, Store
from twinshore.wire.group_places import Place, Where

TRIES_MAX = 5


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

    def __str__(self) -> str:
        was = "no place" if self.before is None else str(self.before)
        place = f"{self.topic}-{self.partition} on {self.cluster}"
        return f"{self.link}: group {self.group}: {place}: {was} -> {self.after} ({self.outcome})"


def move(
    link: Link, settings: Settings, store: Store, pattern: str, *, back: bool, lower: bool, act: bool
) -> list[Step]:
    """The steps, done when `act`; each is in the audit then."""
    rounds = Rounds(link, settings, store, retention_s=1.0)
    try:
        writer = rounds.at_source if back else rounds.at_target
        rounds.begin(time.monotonic())
        steps = []
        for view in look(link, settings, store, pattern):
            wishes = _wishes(view, rounds, back=back, lower=lower)
            live = (view.source_state if back else view.target_state) not in ("Empty", "Dead", "none")
            if wishes and not live:
                codes = _commit(writer, view.group, wishes) if act else {}
                steps += _steps(link.name, writer.name, view.group, wishes, codes, act=act)
        if act and steps:
            now_ms = int(time.time() * 1000)
            store.add_audit(
                [
                    AuditRow(
                        now_ms,
                        link.name,
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
    finally:
        rounds.close()


Wishes = dict[Where, tuple[int | None, Place]]


def _wishes(view: GroupView, rounds: Rounds, *, back: bool, lower: bool) -> Wishes:
    """Each place to commit, with the one that is there now."""
    found: Wishes = {}
    for part in view.parts:
        source, twin = (part.topic, part.partition), (part.twin, part.partition)
        if back:
            place, has, to = part.target, part.source, source
            spot = rounds.scope.parts[source][1].back(place) if place is not None else None
            goal = spot.offset if spot else None
        else:
            has, to = part.target, twin
            goal = None if part.source is None or part.state == State.UNKNOWN else part.within
        if goal is not None and goal != has and (has is None or goal > has or lower):
            found[to] = (has, Place(goal))
    return found


def _commit(writer: Groups, group: str, wishes: Wishes) -> dict[Where, int]:
    for _ in range(TRIES_MAX):
        node = writer.coordinators([group]).get(group)
        if node is not None:
            answer = writer.commit({node: {group: {where: place for where, (_, place) in wishes.items()}}})
            if group in answer:
                return answer[group]
        time.sleep(0.5)
    raise KafkaError(f"{writer.name}: group {group} has no coordinator that answers", retriable=True)


def _steps(link: str, cluster: str, group: str, wishes: Wishes, codes: dict[Where, int], *, act: bool) -> list[Step]:
    return [
        Step(link, cluster, group, *where, has, place.offset, _outcome(codes.get(where, 0)) if act else "not done")
        for where, (has, place) in wishes.items()
    ]


def _outcome(code: int) -> str:
    return f"refused: {describe(code).sentence}" if code else "done"
