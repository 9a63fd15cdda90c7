"""Committed offsets of groups are set on one cluster: looked at again right before, and told in the audit."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from twinshore.fleet import KafkaError
from twinshore.groups.sides import ClusterGroups
from twinshore.kafka.errors import UNANSWERED, describe
from twinshore.service.clock import wall_ms
from twinshore.store import AuditRow, Store
from twinshore.store.audit import is_refusal, refusal
from twinshore.wire.group_places import Place, Where

TRIES_MAX = 5
AGAIN_S = 0.5
DONE, NOT_DONE = "done", "not done"
MEMBERLESS = ("Empty", "Dead", "none")


# Each place to commit, with the one that is there now.
Wishes = dict[Where, tuple[int | None, Place]]


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
        return is_refusal(self.outcome)

    def sentence(self, *, done: bool) -> str:
        was = "no place" if self.before is None else str(self.before)
        place = f"{self.topic}-{self.partition} on {self.cluster}"
        outcome = self.outcome if done else NOT_DONE
        return f"{self.link}: group {self.group}: {place}: {was} -> {self.after} ({outcome})"

    def row(self, now_ms: int, by: str) -> AuditRow:
        """What the audit says of it."""
        subject = f"{self.group} {self.topic}-{self.partition} on {self.cluster}"
        before = "" if self.before is None else str(self.before)
        what = (now_ms, self.link, "group", subject, before, str(self.after), self.outcome, by)
        return AuditRow(*what, self.topic, self.group)


def commit_offsets(
    store: Store,
    writer: ClusterGroups,
    link: str,
    wanted: Mapping[str, Wishes],
    *,
    by: str,
    lower: bool = False,
) -> dict[str, list[Step]]:
    """Commits these groups' places, those of one coordinator in one go, and writes to the audit what came of each. A
    place that has gone on since it was seen is not set back. `lower`: where that was asked for, it is refused."""
    outcomes: dict[str, dict[Where, str]] = {}
    left = {name: wishes for name, wishes in wanted.items() if wishes}
    try:
        for number in range(TRIES_MAX if left else 0):
            if number:
                time.sleep(AGAIN_S)
            outcomes |= _commit_once(writer, left, lower=lower)
            left = {name: wishes for name, wishes in left.items() if name not in outcomes}
            if not left:
                break
        said = refusal("its coordinator does not answer")
    except KafkaError as error:
        said = refusal(error.message)
    outcomes |= {name: dict.fromkeys(wishes, said) for name, wishes in left.items()}
    steps = {name: steps_of(link, writer.name, name, wanted[name], some) for name, some in outcomes.items()}
    now_ms = wall_ms()
    store.audit.add([step.row(now_ms, by) for some in steps.values() for step in some])
    return steps


def _commit_once(writer: ClusterGroups, wanted: Mapping[str, Wishes], *, lower: bool) -> dict[str, dict[Where, str]]:
    """What came of each group's places; a group of which nobody said anything is left out."""
    nodes, refused = writer.located(list(wanted))
    outcomes = {name: dict.fromkeys(wanted[name], refusal(error.message)) for name, error in refused.items()}
    asked: dict[int, dict[str, list[Where]]] = {}
    for name, node in nodes.items():
        asked.setdefault(node, {})[name] = list(wanted[name])
    places = writer.places(asked, {})[0]
    rest: dict[int, dict[str, dict[Where, Place]]] = {}
    gone_on: dict[str, dict[Where, str]] = {}
    for name, node in nodes.items():
        said = places.get(name)
        if said is None or said.error:
            continue
        gone_on[name] = gone_on_since(wanted[name], said.places, lower=lower)
        goals = {where: place for where, (_, place) in wanted[name].items() if where not in gone_on[name]}
        if goals:
            rest.setdefault(node, {})[name] = goals
        else:
            outcomes[name] = gone_on[name]
    for name, codes in (writer.commit(rest) if rest else {}).items():
        told = {where: _outcome(codes.get(where, UNANSWERED)) for where in wanted[name]}
        outcomes[name] = told | gone_on[name]
    return outcomes


def gone_on_since(wishes: Wishes, places: Mapping[Where, Place], *, lower: bool) -> dict[Where, str]:
    """The outcome of each place that is not committed, as the group does not stand any more where it was seen, and
    would be set back by it."""
    found: dict[Where, str] = {}
    for where, (before, goal) in wishes.items():
        now = places[where].offset if where in places else None
        # Where it stands at its goal, an answer to us was lost perhaps: it is committed again.
        if now != before and now is not None and now > goal.offset:
            stands = f"it stands at {now} by now"
            found[where] = refusal(stands) if lower else f"{NOT_DONE}: {stands}"
    return found


def steps_of(link: str, cluster: str, group: str, wishes: Wishes, outcomes: Mapping[Where, str]) -> list[Step]:
    return [Step(link, cluster, group, *where, has, to.offset, outcomes[where]) for where, (has, to) in wishes.items()]


def _outcome(code: int) -> str:
    return refusal(describe(code).sentence) if code else DONE
