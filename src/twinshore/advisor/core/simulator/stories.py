"""The stories: which there are, and one of them step by step. No cluster is asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from twinshore.advisor.core.simulator.model import damages
from twinshore.advisor.core.simulator.report import described, ended, of_story, page, picture, step_values, told, values
from twinshore.advisor.core.simulator.search import STORIES, Story, play
from twinshore.config.errors import ConfigError
from twinshore.config.schema import did_you_mean


def listed() -> Iterator[str]:
    width = max(len(story.name) for story in STORIES)
    for story in STORIES:
        yield f"{story.name:{width}}  {story.title}"


def listed_values() -> list[dict[str, Any]]:
    return [{"name": story.name, "title": story.title, "ends": story.ends} for story in STORIES]


def story_named(name: str) -> Story:
    """ConfigError where nobody knows it."""
    for story in STORIES:
        if story.name == name:
            return story
    hint = did_you_mean(name, [story.name for story in STORIES])
    raise ConfigError(f"no story is called {name!r}{hint}", hint="twinshore simulate story lists them")


def told_story(story: Story) -> Iterator[str]:
    """Each step with the partition after it, then what came of it."""
    yield f"{story.title}."
    yield f"With {described(story.setup)}."
    steps = play(story)
    for line, step in zip(told(story.setup, steps), steps, strict=True):
        yield ""
        yield line
        yield from (f"     {broker}" for broker in picture(step.after))
    yield ""
    yield f"So it ends: {ended(steps)}."
    yield story.moral


def story_values(story: Story) -> dict[str, Any]:
    steps = play(story)
    return {
        "name": story.name,
        "title": story.title,
        "settings": values(story.setup),
        "steps": step_values(story.setup, steps),
        "harm": [damage._asdict() for damage in damages(steps[-1].after)],
        "moral": story.moral,
    }


def every() -> tuple[Story, ...]:
    """All of them, in the order of the list."""
    return STORIES


def page_of(stories: Iterable[Story]) -> str:
    """For whoever opens it in a browser: a story, or several with a list of them."""
    plays = [of_story(story) for story in stories]
    title = plays[0].title if len(plays) == 1 else "How a partition of Kafka keeps or loses a record"
    return page(title, plays)
