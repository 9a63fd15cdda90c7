"""Schedules as one page of HTML that needs nothing else: the logs drawn, forwards and backwards by the keyboard. Pure.

The sentences are there without a script. With it one step is drawn at a time, and its address names it: `#acks-1/3` is
the third step of that play.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from twinshore.fleet.html_page import html_page
from twinshore.loss.harms import damages
from twinshore.loss.page_parts import HOW, SCRIPT, STAGE, STYLE
from twinshore.loss.partition import begin
from twinshore.loss.search import Explored, Step
from twinshore.loss.settings import Setup
from twinshore.loss.stories import Story, play
from twinshore.loss.telling import described, sentence, state_values


@dataclass(frozen=True, slots=True)
class Play:
    """What is drawn: a story, or a schedule that a search found. `end`: what came of it. `moral` may be empty."""

    name: str
    title: str
    setup: Setup
    steps: tuple[Step, ...]
    end: str
    moral: str = ""


def of_story(story: Story) -> Play:
    steps = play(story)
    return Play(story.name, story.title, story.setup, steps, ended(steps), story.moral)


def of_explored(explored: Explored, before: str = "") -> Iterator[Play]:
    """A play for each harm that was found. `before`: what their names begin with, where there are several answers."""
    for harm, found in explored.found.items():
        title = f"{harm.capitalize()} with acks={explored.setup.acks}"
        yield Play(f"{before}{harm}", title, explored.setup, found.steps, found.damage.says)


def ended(steps: tuple[Step, ...]) -> str:
    says = [damage.says for damage in damages(steps[-1].after)]
    return "; ".join(says) or "nothing that was acknowledged is lost, there twice or out of order"


def page(title: str, plays: Sequence[Play], notes: Iterable[str] = ()) -> str:
    """The whole page. `notes` are sentences above the plays."""
    values = json.dumps([_values(one) for one in plays]).replace("<", "\\u003c")
    above = "".join(f"<p>{escape(note)}</p>\n" for note in notes)
    listed = "".join(f'<li><a href="#{escape(one.name)}">{escape(one.title)}</a></li>\n' for one in plays)
    head = "" if [one.title for one in plays] == [title] else f"<h1>{escape(title)}</h1>\n"
    all_of_them = f"<details><summary>All {len(plays)}</summary><ul>\n{listed}</ul></details>"
    index = f"<nav>{all_of_them}</nav>\n" if len(plays) > 1 else ""
    body = (
        f"{head}{above}{index}{STAGE if plays else ''}{''.join(map(_told, plays))}"
        f'<script type="application/json" id="plays">{values}</script>\n<script>\n{SCRIPT}</script>'
    )
    return html_page(title, STYLE, body)


def _told(one: Play) -> str:
    """The play in sentences: what the script hides all but one step of, and what is there without it."""
    steps = "".join(
        f"<li{' class=fault' if step.move.is_fault else ''}>{escape(sentence(one.setup, step))}</li>\n"
        for step in one.steps
    )
    moral = f"<p class=moral>{escape(one.moral)}</p>\n" if one.moral else ""
    return (
        f'<section class=play id="{escape(one.name)}">\n<h2>{escape(one.title)}</h2>\n'
        f"<p class=settings>With {escape(described(one.setup))}. {HOW}</p>\n<ol class=steps>\n{steps}</ol>\n"
        f"<div class=close><p>So it ends: {escape(one.end)}.</p>\n{moral}</div>\n</section>\n"
    )


def _values(one: Play) -> dict[str, Any]:
    states = [begin(one.setup), *(step.after for step in one.steps)]
    return {
        "name": one.name,
        "states": [{**state_values(state), "harm": [damage.record for damage in damages(state)]} for state in states],
        "says": [sentence(one.setup, step) for step in one.steps],
        "brokers": [step.move.broker for step in one.steps],
        "faults": [step.move.is_fault for step in one.steps],
    }
