"""`twinshore simulate story`: lists stories and shows one step by step. No cluster is needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from twinshore.advisor.core.simulator.model import find_anomalies
from twinshore.advisor.core.simulator.playback import (
    build_story_playback,
    describe_ending,
    describe_model_config,
    describe_steps,
    draw_state,
    model_config_as_values,
    render_playbacks,
    steps_as_values,
)
from twinshore.advisor.core.simulator.search import STORIES, Story, play_story
from twinshore.config.errors import ConfigError
from twinshore.config.schema import did_you_mean


def list_stories() -> Iterator[str]:
    width = max(len(story.name) for story in STORIES)
    for story in STORIES:
        yield f"{story.name:{width}}  {story.title}"


def list_story_values() -> list[dict[str, Any]]:
    return [{"name": story.name, "title": story.title, "ends": story.ends} for story in STORIES]


def find_story(name: str) -> Story:
    """Raises ConfigError for an unknown name."""
    for story in STORIES:
        if story.name == name:
            return story
    near = did_you_mean(name, [story.name for story in STORIES])
    raise ConfigError("advisor.unknown-story", story=name, near=near)


def describe_story(story: Story) -> Iterator[str]:
    yield f"{story.title}."
    yield f"With {describe_model_config(story.config)}."
    steps = play_story(story)
    for line, step in zip(describe_steps(story.config, steps), steps, strict=True):
        yield ""
        yield line
        yield from (f"     {broker}" for broker in draw_state(step.after))
    yield ""
    yield f"So it ends: {describe_ending(steps)}."
    yield story.moral


def story_as_values(story: Story) -> dict[str, Any]:
    steps = play_story(story)
    return {
        "name": story.name,
        "title": story.title,
        "settings": model_config_as_values(story.config),
        "steps": steps_as_values(story.config, steps),
        "harm": [damage._asdict() for damage in find_anomalies(steps[-1].after)],
        "moral": story.moral,
    }


def get_all_stories() -> tuple[Story, ...]:
    return STORIES


def render_stories(stories: Iterable[Story]) -> str:
    plays = [build_story_playback(story) for story in stories]
    title = plays[0].title if len(plays) == 1 else "How a partition of Kafka keeps or loses a record"
    return render_playbacks(title, plays)
