"""Habits in sentences, for a terminal. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from twinshore.advisor.conduct.judging import Conduct
from twinshore.advisor.conduct.rule import Habit
from twinshore.advisor.rule import WEIGHTS
from twinshore.fleet.sentences import counted, moment

SHOWN = 10


def verdict(conduct: Conduct) -> str:
    """All of it in a line."""
    by_weight = [
        f"{count} {weight}" for weight in WEIGHTS if (count := sum(one.weight is weight for one in conduct.habits))
    ]
    found = f"{counted(len(conduct.habits), 'finding')}: {', '.join(by_weight)}" if by_weight else "nothing was found"
    waived = f"; {len(conduct.waived)} waived" if conduct.waived else ""
    unseen = f"; {counted(len(conduct.unseen), 'thing')} could not be seen" if conduct.unseen else ""
    between = f"{moment(conduct.from_ms)} to {moment(conduct.to_ms)}"
    return f"{counted(conduct.clients, 'client')}, {between}: {found}{waived}{unseen}"


def sentences_of(conduct: Conduct, *, everything: bool = False) -> Iterator[str]:
    """The verdict first, then each rule's habits together, of which ten are shown unless `everything` is wanted."""
    yield verdict(conduct)
    most = len(conduct.habits) if everything else SHOWN
    for rule in dict.fromkeys(one.rule for one in conduct.habits):
        yield ""
        yield from _of_rule([one for one in conduct.habits if one.rule == rule], most)
    for row in conduct.waived:
        yield f"waived until {row.waiver.until}: {row.habit.rule}, {row.habit.subject}: {row.waiver.reason}"
    for one in conduct.unseen:
        yield f"could not see {one.what}: {one.why}" + (f" (try: {one.hint})" if one.hint else "")
    yield from conduct.remarks


def _of_rule(habits: list[Habit], most: int) -> Iterable[str]:
    first = habits[0]
    yield f"{first.weight.upper()} {first.rule}: {first.says}"
    yield f"  it costs: {first.costs}"
    for one in habits[:most]:
        yield f"  {one.subject}: {one.evidence}"
        yield f"      cost: {one.cost}"
        for line in one.settings:
            yield f"      {line}"
        yield f"      then: {one.effect}"
    if len(habits) > most:
        yield f"  and {len(habits) - most:,} more: --all shows them, --json has them"
