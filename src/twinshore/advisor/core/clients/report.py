"""What comes of what clients did: their habits under a policy. Pure, and in parts: each client is judged by itself.

Habits told: in sentences for a terminal, and as one page of HTML that needs nothing else: no script, no font, no
address, and drawings as SVG within it. Pure.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from twinshore.advisor.core.clients.model import Client, Habit, HabitRule, Use, Uses, habit_of, size
from twinshore.advisor.core.clients.rules import HABITS
from twinshore.advisor.core.html_page import html_page
from twinshore.advisor.core.model import WEIGHTS, Policy, Unseen, Waiver
from twinshore.advisor.core.report import STYLE, counts, listing
from twinshore.config.sentences import counted, followed, moment
from twinshore.state.core.proxy_values import OTHERS, FlowKey, FlowKind

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


LINES = 10


def verdict(conduct: Conduct) -> str:
    """All of it in a line."""
    found = counts([one.weight for one in conduct.habits], len(conduct.waived), len(conduct.unseen))
    between = f"{moment(conduct.from_ms)} to {moment(conduct.to_ms)}"
    return f"{counted(conduct.clients, 'client')}, {between}: {found}"


def sentences_of(conduct: Conduct, *, everything: bool = False) -> Iterator[str]:
    """The verdict first, then each rule's habits together, of which ten are shown unless `everything` is wanted."""
    yield verdict(conduct)
    most = len(conduct.habits) if everything else LINES
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


SHOWN = 20
BARS = 15
DRAWINGS = """\
svg{display:block;width:100%;height:auto;margin:.4rem 0}svg text{font:11px system-ui,sans-serif;fill:currentColor}
svg .area{fill:#4a7bd055;stroke:#4a7bd0}svg .bar{fill:#4a7bd0}svg .axis{stroke:var(--line)}
"""


def page(conduct: Conduct) -> str:
    """The whole page."""
    title = "How clients use their clusters"
    body = "\n".join(_body(conduct))
    return html_page(title, f"{STYLE}{DRAWINGS}", f"<h1>{title}</h1>\n<p>{escape(verdict(conduct))}.</p>\n{body}")


def _body(conduct: Conduct) -> Iterator[str]:
    for weight in WEIGHTS:
        for rule in dict.fromkeys(one.rule for one in conduct.habits if one.weight is weight):
            yield _rule([one for one in conduct.habits if one.rule == rule], conduct)
    yield _flows("What producers send, bytes", conduct, FlowKind.PRODUCE)
    yield _flows("What consumers are given, bytes", conduct, FlowKind.FETCH)
    yield _requests(conduct)
    waived = (
        f"{one.habit.rule}, {one.habit.subject} (until {one.waiver.until}: {one.waiver.reason})"
        for one in conduct.waived
    )
    yield listing("Waived", waived)
    yield listing("Could not be seen", (followed(f"{one.what}: {one.why}", one.hint) for one in conduct.unseen))
    yield listing("To be known", conduct.remarks)


def _rule(habits: Sequence[Habit], conduct: Conduct) -> str:
    first = habits[0]
    some, more = habits[:SHOWN], habits[SHOWN:]
    rest = "".join(f"<li>{escape(one.subject)}: {escape(one.evidence)}</li>" for one in more)
    hidden = f"<details><summary>{len(more):,} more</summary><ul>{rest}</ul></details>" if more else ""
    return (
        f'<article class="{first.weight}" id="{escape(first.rule)}">\n'
        f'<h2><span class="weight">{first.weight}</span> {escape(first.says)}</h2>\n'
        f"<p><b>It costs:</b> {escape(first.costs)}.</p>\n"
        f"{''.join(_habit(one, conduct) for one in some)}{hidden}</article>"
    )


def _habit(one: Habit, conduct: Conduct) -> str:
    lines = "".join(f"<pre>{escape(line)}</pre>\n" for line in one.settings)
    use = of_habit(one, conduct.uses)
    drawn = course(use.points, (conduct.from_ms, conduct.to_ms, conduct.stretch_ms), "requests a second")
    return (
        f"<p><b>{escape(one.subject)}</b>: {escape(one.evidence)}</p>\n<p>Cost: {escape(one.cost)}.</p>\n{drawn}"
        f"{lines}<p>Then: {escape(one.effect)}.</p>\n"
    )


def _flows(title: str, conduct: Conduct, kind: FlowKind) -> str:
    def told(key: FlowKey, use: Use) -> tuple[str, float, str]:
        name = f"{key.client or 'no id'}, {key.topic or 'several topics'} on {key.cluster}"
        return name, float(use.flow.bytes), size(use.flow.bytes)

    rows = [told(key, use) for key, use in conduct.uses.items() if key.kind is kind and use.flow.bytes]
    return _drawn(title, rows)


def _requests(conduct: Conduct) -> str:
    rows = [
        (key.client or "no id", float(use.flow.requests), f"{use.flow.requests:,}")
        for key, use in conduct.uses.items()
        if key.kind is FlowKind.CLIENT
    ]
    return _drawn("What clients ask, requests", rows)


def _drawn(title: str, rows: list[tuple[str, float, str]]) -> str:
    rows.sort(key=lambda one: -one[1])
    more = f"<p>The largest {BARS} of {len(rows):,}.</p>\n" if len(rows) > BARS else ""
    return f"<h2>{escape(title)}</h2>\n{more}{bars(rows[:BARS])}" if rows else ""


WIDTH, HEIGHT, EDGE = 800, 90, 14
ROW, NAME = 20, 330


def course(points: Mapping[int, tuple[int, int]], span: tuple[int, int, int], told: str) -> str:
    """Requests a second over time; nothing where there is nothing to see."""
    from_ms, to_ms, stretch_ms = span
    first, last = from_ms // stretch_ms, max(to_ms // stretch_ms, from_ms // stretch_ms + 1)
    rates = [points.get(number, (0, 0))[0] * 1000 / stretch_ms for number in range(first, last + 1)]
    top = max(rates)
    if not top:
        return ""
    floor = HEIGHT - EDGE
    step = WIDTH / (len(rates) - 1)
    dots = " ".join(f"{x * step:.1f},{floor - rate / top * (floor - EDGE):.1f}" for x, rate in enumerate(rates))
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(told)}">'
        f'<polygon class="area" points="0,{floor} {dots} {WIDTH},{floor}"/>'
        f'<line class="axis" x1="0" y1="{floor}" x2="{WIDTH}" y2="{floor}"/>'
        f'<text x="0" y="{EDGE - 3}">{top:,.1f} {escape(told)}</text>'
        f'<text x="0" y="{HEIGHT - 2}">{moment(from_ms)}</text>'
        f'<text x="{WIDTH}" y="{HEIGHT - 2}" text-anchor="end">{moment(to_ms)}</text></svg>\n'
    )


def bars(rows: Sequence[tuple[str, float, str]]) -> str:
    """A bar for each name, with its figure in words."""
    top = max((value for _, value, _ in rows), default=0) or 1
    room = WIDTH - NAME - 90
    drawn = "".join(
        f'<text x="0" y="{y * ROW + 14}">{escape(_short(name))}</text>'
        f'<rect class="bar" x="{NAME}" y="{y * ROW + 4}" width="{max(1.0, value / top * room):.1f}" height="13"/>'
        f'<text x="{NAME + max(1.0, value / top * room) + 6:.1f}" y="{y * ROW + 14}">{escape(told)}</text>'
        for y, (name, value, told) in enumerate(rows)
    )
    return f'<svg viewBox="0 0 {WIDTH} {len(rows) * ROW + 4}" role="img">{drawn}</svg>\n'


def _short(name: str, most: int = 52) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"
