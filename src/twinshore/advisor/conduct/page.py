"""Habits as one page of HTML that needs nothing else: no script, no font, no address. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from twinshore.advisor.conduct.drawing import bars, course
from twinshore.advisor.conduct.figures import size
from twinshore.advisor.conduct.judging import Conduct, of_habit
from twinshore.advisor.conduct.rule import Habit
from twinshore.advisor.conduct.telling import verdict
from twinshore.advisor.conduct.uses import Use
from twinshore.advisor.html import STYLE, listing
from twinshore.advisor.rule import WEIGHTS
from twinshore.fleet.html_page import html_page
from twinshore.fleet.sentences import followed
from twinshore.store.traffic_values import FlowKey, FlowKind

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
