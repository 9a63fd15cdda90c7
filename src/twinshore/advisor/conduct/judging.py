"""What comes of what clients did: their habits under a policy. Pure, and in parts: each client is judged by itself."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from twinshore.advisor.conduct.rule import Habit, HabitRule, habit_of
from twinshore.advisor.conduct.rules.table import HABITS
from twinshore.advisor.conduct.uses import Client, Use, Uses
from twinshore.advisor.policy import Policy, Waiver
from twinshore.advisor.rule import WEIGHTS
from twinshore.advisor.seen import Unseen
from twinshore.store.traffic_values import OTHERS, FlowKey, FlowKind

FORM = 1


@dataclass(frozen=True, slots=True)
class Waived:
    """A habit that is passed over."""

    habit: Habit
    waiver: Waiver


@dataclass(frozen=True, slots=True)
class Conduct:
    """Of the time from `from_ms` to `to_ms`. `clients`: how many were judged; `uses`: what they did."""

    from_ms: int
    to_ms: int
    clients: int
    habits: tuple[Habit, ...]
    waived: tuple[Waived, ...]
    unseen: tuple[Unseen, ...]
    remarks: tuple[str, ...]
    uses: Uses
    stretch_ms: int

    def exit_code(self, policy: Policy) -> int:
        """As that of `twinshore advise`."""
        if any(policy.fails(one.weight) for one in self.habits):
            return 1
        return 2 if self.unseen else 0

    def as_values(self, policy: Policy) -> dict[str, Any]:
        """For programs."""
        return {
            "form": FORM,
            "from_ms": self.from_ms,
            "to_ms": self.to_ms,
            "clients": self.clients,
            "exit_code": self.exit_code(policy),
            "habits": [one.as_values() for one in self.habits],
            "waived": [
                {
                    **one.habit.as_values(),
                    "waiver": {"reason": one.waiver.reason, "until": one.waiver.until.isoformat()},
                }
                for one in self.waived
            ],
            "unseen": list(map(asdict, self.unseen)),
            "remarks": list(self.remarks),
        }


def judge(client: Client, policy: Policy, rules: Sequence[HabitRule] = HABITS) -> list[Habit]:
    """The habits of one client. Those who are not told apart are nobody who could be advised."""
    if client.name == OTHERS:
        return []
    return [
        habit_of(rule, case)
        for rule in rules
        if rule.name not in policy.off
        for case in rule.judge(client, policy.limits_of(rule))
    ]


def conduct_of(
    found: Iterable[Habit], policy: Policy, uses: Uses, span: tuple[int, int, int], unseen: Sequence[Unseen]
) -> Conduct:
    """The whole, the gravest first. `span`: from, to, and how long a stretch of the drawings is."""
    from_ms, to_ms, stretch_ms = span
    day = datetime.datetime.fromtimestamp(to_ms / 1000, datetime.UTC).date()
    habits = sorted(found, key=lambda one: (WEIGHTS.index(one.weight), one.rule, one.subject))
    waived = [Waived(one, waiver) for one in habits if (waiver := policy.waiver_of(one, day)) is not None]
    passed = {(one.habit.rule, one.habit.subject) for one in waived}
    names = {key.client for key in uses}
    remarks = list(policy.remarks(habits, day))
    if OTHERS in names:
        remarks.append("some clients were too many to be told apart: they are not judged")
    return Conduct(
        from_ms,
        to_ms,
        len(names - {OTHERS}),
        tuple(one for one in habits if (one.rule, one.subject) not in passed),
        tuple(waived),
        tuple(unseen),
        tuple(remarks),
        uses,
        stretch_ms,
    )


def of_habit(habit: Habit, uses: Uses) -> Use:
    """What the client did there, for a drawing: all of it where the habit is about no topic."""
    found = Use()
    for key, use in uses.items():
        if key.client == habit.client and _meant(key, habit):
            found.add(use)
    return found


def _meant(key: FlowKey, habit: Habit) -> bool:
    if not habit.topic:
        return key.kind is FlowKind.CLIENT
    return key.topic == habit.topic and habit.cluster in ("", key.cluster)
