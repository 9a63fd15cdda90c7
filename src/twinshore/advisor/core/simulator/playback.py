"""Schedules as sentences, as JSON values, and as one self-contained HTML page with drawn logs.

Without JavaScript the page shows all sentences; with JavaScript one step at a time, by keyboard or address: `#acks-1/3`
is step 3 of that playback.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any, Final

from twinshore.advisor.core.html_page import html_page, page_part
from twinshore.advisor.core.simulator.model import (
    FAULT_BY_ACTION,
    NO_OFFSET,
    FaultKind,
    FlushMode,
    ModelAction,
    ModelConfig,
    ModelEvent,
    ModelPartition,
    ModelReplica,
    ProducerAcks,
    SendState,
    TruncationMode,
    build_initial_state,
    find_anomalies,
    find_divergence,
)
from twinshore.advisor.core.simulator.search import Exploration, Schedule, ScheduleStep, Story, play_story
from twinshore.config.sentences import count_phrase

_BROKER = {
    ModelAction.LET_OFFSETS_FOLLOW: "Broker {b} turns to the new leader and cuts its log to its own high watermark",
    ModelAction.ELECT: "The controller makes broker {b} the leader",
    ModelAction.RESTART: "Broker {b} starts again",
    ModelAction.HEAL: "Broker {b} reaches the others again",
    ModelAction.RECOVER: "Broker {b} is as fast as before",
    ModelAction.GIVE_UP: "The producer waits no longer for broker {b} and turns to the new leader",
    ModelAction.POLL: "The consumer gets record {o}",
    ModelAction.HANDLE: "The consumer handles record {o}",
    ModelAction.CRASH: "The process of broker {b} dies",
    ModelAction.CUT: "Broker {b} is cut off from the other brokers and the controller, not from clients",
    ModelAction.READER: "The consumer dies, and another one goes on from the committed offset",
    ModelAction.REST: "The group has no member for offsets.retention.minutes, so its committed offset expires",
    ModelAction.DELETE: "Retention deletes record {o}",
}


def describe_steps(config: ModelConfig, steps: Iterable[ScheduleStep]) -> Iterator[str]:
    for number, step in enumerate(steps, 1):
        yield f"{number}. {'Fault: ' if step.move.is_fault else ''}{describe_step(config, step)}"


def describe_step(config: ModelConfig, step: ScheduleStep) -> str:
    move, before, after = step.move, step.before, step.after
    return "; ".join([_deed(config, move, before, after), *_changes(step)]) + "."


def _deed(config: ModelConfig, move: ModelEvent, before: ModelPartition, after: ModelPartition) -> str:
    broker = move.broker
    if move.deed in (ModelAction.SEND, ModelAction.UNANSWERED):
        return _sending(config, move, before, after)
    if move.deed is ModelAction.FETCH:
        return f"Broker {broker} fetches from broker {before.leader}"
    if move.deed is ModelAction.SHRINK:
        whom = "all followers" if broker == before.leader else f"broker {broker}"
        return f"The leader takes {whom} out of the in-sync set"
    if move.deed is ModelAction.NOTICE:
        heir = f" and makes broker {move.other} the leader" if move.other else ""
        nobody = " and has nobody to lead" if before.leader and not after.leader else ""
        return f"The controller misses broker {broker}{heir}{nobody}"
    if move.deed is ModelAction.COMMIT and after.reader is not None:
        return f"The consumer commits offset {after.reader.committed}"
    if move.deed is ModelAction.SEEK and after.reader is not None:
        to = f"offset {after.reader.place} (auto.offset.reset={config.reset})"
        return f"The consumer has no valid offset there, and goes to {to}"
    if move.deed is ModelAction.POWER:
        return f"Broker {broker} loses its power, and with it what was not on disk"
    if move.deed is ModelAction.SLOW:
        what = "answers its followers too slowly" if broker == before.leader else "is too slow to fetch"
        return f"Broker {broker} {what}"
    return _BROKER[move.deed].format(b=broker, o=move.other)


def _sending(config: ModelConfig, move: ModelEvent, before: ModelPartition, after: ModelPartition) -> str:
    broker, record = move.broker, move.other
    old, new = before.of(broker), after.of(broker)
    again = " again" if before.sent[record - 1] == SendState.REFUSED else ""
    sends = f"The producer sends record {record}{again} to broker {broker}"
    if len(new.log) > len(old.log):
        does = f"it is appended at offset {len(old.log)}"
    elif config.acks is ProducerAcks.NONE:
        return f"{sends}, and it never arrives"
    elif old.holds(record):
        does = "the broker knows its sequence number, and does not append it again"
    elif len(before.in_sync) < config.effective_min_insync:
        does = "too few replicas are in sync (NOT_ENOUGH_REPLICAS)"
    else:
        does = "an earlier record is missing (OUT_OF_ORDER_SEQUENCE_NUMBER)"
    return f"{sends}; {does}{', and the answer is lost' if move.deed is ModelAction.UNANSWERED else ''}"


def _changes(step: ScheduleStep) -> Iterator[str]:
    before, after = step.before, step.after
    for broker in before.brokers:
        yield from _log_changes(step.move, before.of(broker), after.of(broker))
    if after.leader and after.leader == before.leader and after.of(after.leader).high > before.of(after.leader).high:
        yield f"the high watermark is {after.of(after.leader).high}"
    if after.in_sync != before.in_sync:
        yield f"in sync: {_numbers(after.in_sync)}"
    if _eligible(after) != _eligible(before):
        yield f"eligible: {_numbers(_eligible(after))}"
    for record, (old, new) in enumerate(zip(before.sent, after.sent, strict=True), 1):
        if old != new and new == SendState.ACKNOWLEDGED:
            yield f"record {record} is acknowledged" if _is_answered(step) else f"record {record} counts as sent"
        elif old != new and new == SendState.REFUSED:
            yield f"record {record} is not acknowledged"


def _is_answered(step: ScheduleStep) -> bool:
    """With acks=0 a record may count as acknowledged though it never arrived."""
    return any(step.after.of(one).holds(record) for one in step.after.brokers for record in _fresh(step))


def _fresh(step: ScheduleStep) -> set[int]:
    return set(step.after.acknowledged) - set(step.before.acknowledged)


def _log_changes(move: ModelEvent, old: ModelReplica, new: ModelReplica) -> Iterator[str]:
    kept = find_divergence(old, new)
    if gone := [entry.record for entry in old.log[kept:]]:
        verb = "loses" if move.deed is ModelAction.POWER else "cuts"
        yield f"it {verb} {_records(gone)}"
    if move.deed is ModelAction.FETCH and (got := [entry.record for entry in new.log[kept:]]):
        yield f"it gets {_records(got)}"


def _eligible(state: ModelPartition) -> tuple[int, ...]:
    return tuple(broker for broker in state.brokers if state.of(broker).eligible)


def _records(numbers: list[int]) -> str:
    return f"record{'s' if len(numbers) > 1 else ''} {_numbers(numbers)}"


def _numbers(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers)) or "nobody"


def draw_state(state: ModelPartition) -> Iterator[str]:
    for broker in state.brokers:
        replica = state.of(broker)
        signs = {
            "leads": broker == state.leader,
            "takes itself for the leader": replica.leads and broker != state.leader,
            "down": not replica.up,
            "cut off": replica.cut,
            "slow": replica.slow,
            "in sync": replica.in_sync,
            "eligible": replica.eligible,
        }
        log = " ".join(f"{entry.record}" for entry in replica.log[state.first :]) or "-"
        shown = ", ".join(sign for sign, holds in signs.items() if holds)
        yield f"broker {broker} | records {log} | high watermark {replica.high} | {shown or 'lags'}"
    if (reader := state.reader) is not None:
        handled = [
            f"{at}{f' {count} times' if count > 1 else ''}" for at, count in enumerate(reader.handled, 1) if count
        ]
        hand = f" | has record {reader.hand}" if reader.hand else ""
        places = f"reads next {_place(reader.place)} | committed {_place(reader.committed)}"
        yield f"consumer | {places}{hand} | handled {', '.join(handled) or '-'}"


def _place(offset: int) -> str:
    return "nothing" if offset == NO_OFFSET else f"offset {offset}"


def describe_model_config(config: ModelConfig) -> str:
    parts = [
        count_phrase(config.replicas, "replica"),
        f"acks={config.acks}",
        f"min.insync.replicas={config.min_insync}{_taken(config)}",
        f"unclean election {'on' if config.unclean else 'off'}",
        f"idempotence {'on' if config.idempotent else 'off'}",
        f"retries {'on' if config.retries else 'off'}",
        f"eligible leader replicas {'on' if config.elr else 'off'}",
    ]
    parts += [f"{config.away} away, and a record acknowledged before"] if config.away else []
    parts += ["each record flushed"] if config.flush is FlushMode.EACH else []
    parts += ["followers cut by high watermark"] if config.truncation is TruncationMode.HIGH_WATERMARK else []
    parts += [] if config.commit == "none" else [f"commit: {config.commit}"]
    parts += [] if config.reset == "none" else [f"auto.offset.reset={config.reset}"]
    return ", ".join(parts)


def _taken(config: ModelConfig) -> str:
    return f" (Kafka takes {config.effective_min_insync})" if config.effective_min_insync < config.min_insync else ""


def describe_outcome(explored: Exploration, *, steps: bool = True, pictures: bool = False) -> Iterator[str]:
    """The smallest schedule for each sought harm, or that none exists within the bounds.

    Without `steps` only their number; with `pictures` also the state after each.
    """
    config = explored.config
    yield f"With {describe_model_config(config)}:"
    for harm in explored.sought:
        yield from [""] if steps else []
        found = explored.found.get(harm)
        if found is not None:
            many = (
                f"{harm.upper()} by {count_phrase(found.faults, 'fault')} in {count_phrase(len(found.steps), 'step')}"
            )
            yield f"{many}{':' if steps else '.'}"
            yield from _played(config, found, pictures=pictures) if steps else []
        elif explored.whole:
            yield f"{harm.upper()}: by no schedule within {_bounds(explored)}; {explored.states} states were looked at."
        else:
            yield f"{harm.upper()}: cannot tell. {explored.states} states were looked at, and there are more."
    # A fault that was not searched must not look safe.
    if left := [fault.value for fault in FaultKind if fault not in config.able]:
        yield from [""] if steps else []
        yield f"Left out: {', '.join(left)}."


def _played(config: ModelConfig, found: Schedule, *, pictures: bool) -> Iterator[str]:
    for line, step in zip(describe_steps(config, found.steps), found.steps, strict=True):
        yield f"  {line}"
        yield from (f"       {broker}" for broker in draw_state(step.after) if pictures)
    yield f"  So it ends: {found.damage.says}."


def _bounds(explored: Exploration) -> str:
    return f"{count_phrase(explored.faults_max, 'fault')} and {count_phrase(explored.config.records, 'record')}"


def model_config_as_values(config: ModelConfig) -> dict[str, Any]:
    """`faults`: those searched, which are possible under these settings."""
    return {**asdict(config), "faults": [fault for fault in FaultKind if fault in config.able]}


def steps_as_values(config: ModelConfig, steps: Iterable[ScheduleStep]) -> list[dict[str, Any]]:
    return [
        {
            "says": describe_step(config, step),
            "deed": step.move.deed,
            "fault": FAULT_BY_ACTION.get(step.move.deed),
            "broker": step.move.broker or None,
            "after": state_as_values(step.after),
        }
        for step in steps
    ]


def state_as_values(state: ModelPartition) -> dict[str, Any]:
    """Log entries are pairs of record and leader epoch."""
    return {
        "leader": state.leader or None,
        "epoch": state.epoch,
        "in_sync": list(state.in_sync),
        "log_start": state.first,
        "acknowledged": list(state.acknowledged),
        "sent": [SendState(status).name.lower().replace("_", " ") for status in state.sent],
        "brokers": [
            {
                "broker": broker,
                "log": [list(entry) for entry in state.of(broker).log],
                "high_watermark": state.of(broker).high,
                "up": state.of(broker).up,
                "takes_itself_for_leader": state.of(broker).leads,
                "cut_off": state.of(broker).cut,
                "slow": state.of(broker).slow,
                "eligible": state.of(broker).eligible,
            }
            for broker in state.brokers
        ],
        "reader": None if state.reader is None else dict(zip(state.reader._fields, state.reader, strict=True)),
    }


@dataclass(frozen=True, slots=True)
class Playback:
    """A story, or a schedule found by a search. `end`: the outcome. `moral` may be empty."""

    name: str
    title: str
    config: ModelConfig
    steps: tuple[ScheduleStep, ...]
    end: str
    moral: str = ""


def build_story_playback(story: Story) -> Playback:
    steps = play_story(story)
    return Playback(story.name, story.title, story.config, steps, describe_ending(steps), story.moral)


def build_exploration_playbacks(explored: Exploration, before: str = "") -> Iterator[Playback]:
    """`before`: a prefix of the playbacks' names, to tell several searches apart."""
    for harm, found in explored.found.items():
        title = f"{harm.capitalize()} with acks={explored.config.acks}"
        yield Playback(f"{before}{harm}", title, explored.config, found.steps, found.damage.says)


def describe_ending(steps: tuple[ScheduleStep, ...]) -> str:
    says = [damage.says for damage in find_anomalies(steps[-1].after)]
    return "; ".join(says) or "nothing that was acknowledged is lost, there twice or out of order"


def render_playbacks(title: str, plays: Sequence[Playback], notes: Iterable[str] = ()) -> str:
    """The HTML page. `notes`: sentences above the playbacks."""
    values = json.dumps([_values(playback) for playback in plays]).replace("<", "\\u003c")
    above = "".join(f"<p>{escape(note)}</p>\n" for note in notes)
    listed = "".join(
        f'<li><a href="#{escape(playback.name)}">{escape(playback.title)}</a></li>\n' for playback in plays
    )
    head = "" if [playback.title for playback in plays] == [title] else f"<h1>{escape(title)}</h1>\n"
    all_of_them = f"<details><summary>All {len(plays)}</summary><ul>\n{listed}</ul></details>"
    index = f"<nav>{all_of_them}</nav>\n" if len(plays) > 1 else ""
    stage, player = page_part("stage.html") if plays else "", page_part("player.js")
    body = (
        f"{head}{above}{index}{stage}{''.join(map(_told, plays))}"
        f'<script type="application/json" id="plays">{values}</script>\n<script>\n{player}</script>'
    )
    return html_page(title, body, "player.css")


def _told(playback: Playback) -> str:
    """The playback in sentences; with JavaScript one step is visible, without it all are."""
    steps = "".join(
        f"<li{' class=fault' if step.move.is_fault else ''}>{escape(describe_step(playback.config, step))}</li>\n"
        for step in playback.steps
    )
    moral = f"<p class=moral>{escape(playback.moral)}</p>\n" if playback.moral else ""
    return (
        f'<section class=play id="{escape(playback.name)}">\n<h2>{escape(playback.title)}</h2>\n'
        f"<p class=settings>With {escape(describe_model_config(playback.config))}. {KEYS_HINT_HTML}</p>\n<ol "
        f"class=steps>\n{steps}</ol>\n"
        f"<div class=close><p>So it ends: {escape(playback.end)}.</p>\n{moral}</div>\n</section>\n"
    )


def _values(playback: Playback) -> dict[str, Any]:
    states = [build_initial_state(playback.config), *(step.after for step in playback.steps)]
    return {
        "name": playback.name,
        "states": [
            {**state_as_values(state), "harm": [damage.record for damage in find_anomalies(state)]} for state in states
        ],
        "says": [describe_step(playback.config, step) for step in playback.steps],
        "brokers": [step.move.broker for step in playback.steps],
        "faults": [step.move.is_fault for step in playback.steps],
    }


KEYS_HINT_HTML: Final = "<span class=how>Arrow keys go a step on or back, Home and End to its beginning and end.</span>"
