"""`twinshore simulate explore`: the smallest schedule of faults that harms an acknowledged record. `twinshore simulate
story`: lists stories and shows one step by step. No cluster is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from twinshore.advisor.core.simulator.model import (
    Anomaly,
    AutoOffsetReset,
    CommitMode,
    FaultKind,
    FlushMode,
    ModelConfig,
    ProducerAcks,
    TruncationMode,
    find_anomalies,
)
from twinshore.advisor.core.simulator.playback import (
    build_exploration_playbacks,
    build_story_playback,
    describe_ending,
    describe_model_config,
    describe_outcome,
    describe_steps,
    draw_state,
    model_config_as_values,
    render_playbacks,
    steps_as_values,
)
from twinshore.advisor.core.simulator.search import STATES_MAX, STORIES, Exploration, Story, explore, play_story
from twinshore.config.errors import ConfigError
from twinshore.config.schema import did_you_mean, parse_member

REPLICAS_MAX = 5
RECORDS_MAX = 4
FAULTS_MAX = 4


@dataclass(frozen=True, slots=True)
class ExplorationRequest:
    """`idempotent` None: on if acks=all and retries allow it, as in clients. `capped`: false for brokers before Kafka
    3.7; ignored with high-watermark truncation.
    """

    replicas: int = 3
    records: int = 2
    acks: str = "all"
    min_insync: int = 1
    unclean: bool = False
    flush: str = "never"
    truncation: str = "epoch"
    elr: bool = False
    idempotent: bool | None = None
    retries: bool = True
    in_flight: bool = True
    commit: str = "none"
    kinds: tuple[str, ...] = ()
    harms: tuple[str, ...] = ()
    faults_max: int = 2
    states_max: int = STATES_MAX
    away: int = 0
    reset: str = "none"
    capped: bool = True


def build_model_config(request: ExplorationRequest) -> ModelConfig:
    """Raises ConfigError for an unknown value, or for settings that Kafka refuses together."""
    for name, value, least, most in (
        ("replicas", request.replicas, 1, REPLICAS_MAX),
        ("records", request.records, 1, RECORDS_MAX),
        ("faults", request.faults_max, 0, FAULTS_MAX),
        ("min-insync", request.min_insync, 1, REPLICAS_MAX + 1),
        ("away", request.away, 0, request.replicas - 1),
    ):
        if not least <= value <= most:
            raise ConfigError("advisor.out-of-range", option=name, value=value, least=least, most=most)
    acks = parse_member(ProducerAcks, "acks", request.acks)
    able = acks is ProducerAcks.ALL and request.retries
    truncation = parse_member(TruncationMode, "truncation", request.truncation)
    config = ModelConfig(
        request.replicas,
        request.records,
        acks,
        request.min_insync,
        request.unclean,
        parse_member(FlushMode, "flush", request.flush),
        truncation,
        request.elr,
        able if request.idempotent is None else request.idempotent,
        request.retries and acks is not ProducerAcks.NONE,
        request.in_flight,
        parse_member(CommitMode, "commit", request.commit),
        away=request.away,
        reset=parse_member(AutoOffsetReset, "reset", request.reset),
        capped=request.capped and truncation is TruncationMode.EPOCH,
    )
    if config.idempotent and not able:
        raise ConfigError("advisor.idempotence-needs-acks")
    if config.reset is not AutoOffsetReset.NONE and config.commit is CommitMode.NONE:
        raise ConfigError("advisor.reset-without-commit")
    if config.elr and config.truncation is TruncationMode.HIGH_WATERMARK:
        raise ConfigError("advisor.elr-with-high-watermark")
    kinds = frozenset(parse_member(FaultKind, "fault", kind) for kind in request.kinds)
    return replace(config, faults=kinds) if kinds else config


def run_exploration(request: ExplorationRequest) -> Exploration:
    """Runs the search. Equal requests give equal results on any machine."""
    harms = tuple(parse_member(Anomaly, "harm", harm) for harm in request.harms) or tuple(Anomaly)
    sought = tuple(dict.fromkeys(harms))
    return explore(
        build_model_config(request), faults_max=request.faults_max, sought=sought, states_max=request.states_max
    )


def exit_code(found: Exploration) -> int:
    """1: a schedule does harm. 0: none within the bounds. 2: the search was incomplete."""
    return 1 if found.found else 0 if found.whole else 2


sentences_of = describe_outcome


def render_exploration(found: Exploration) -> str:
    return render_playbacks(
        "The fewest faults that do harm", [*build_exploration_playbacks(found)], describe_outcome(found, steps=False)
    )


def exploration_as_values(found: Exploration) -> dict[str, Any]:
    """JSON values. A harm without a schedule within the bounds is null; `whole`: the search was complete."""
    schedules: dict[str, Any] = dict.fromkeys(found.sought)
    for harm, schedule in found.found.items():
        schedules[harm] = {
            "faults": schedule.faults,
            "record": schedule.damage.record,
            "says": schedule.damage.says,
            "steps": steps_as_values(found.config, schedule.steps),
        }
    return {
        "settings": model_config_as_values(found.config),
        "faults_max": found.faults_max,
        "states": found.states,
        "whole": found.whole,
        "schedules": schedules,
    }


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
