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

from twinshore.advisor.core.html_page import html_page
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
    body = (
        f"{head}{above}{index}{STAGE_HTML if plays else ''}{''.join(map(_told, plays))}"
        f'<script type="application/json" id="plays">{values}</script>\n<script>\n{PAGE_SCRIPT}</script>'
    )
    return html_page(title, PAGE_CSS, body)


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
STAGE_HTML: Final = """\
<div id="stage" hidden>
<p class="bar"><button data-go="first">first</button><button data-go="back">back</button><output id="at"></output>\
<button data-go="on">on</button><button data-go="last">last</button></p>
<p id="says" aria-live="polite"></p>
<div id="drawn"></div>
<p class="key"><span class="cell above">1</span> not below the high watermark <span class="cell">1</span> below it
<span class="cell fresh">1</span> new in this step <span class="cell gone">1</span> cut in this step, or deleted.
Colours are leader epochs.</p>
</div>
"""
PAGE_CSS: Final = """\
:root{color-scheme:light dark;--line:#8886;--fault:#b3261e;--sound:#1a7f37;--accent:#0969da}
body{font:16px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.2rem;margin-top:2rem}
nav ul{columns:2 18rem;padding-left:1.2rem}summary{cursor:pointer}body{overflow-wrap:anywhere}
nav a[aria-current]{font-weight:600}
.settings,.how,.key{opacity:.75;font-size:.85rem}
ol.steps li{padding:.1rem .4rem;cursor:pointer}ol.steps li.fault::before{content:"Fault: ";color:var(--fault);
font-weight:600}ol.steps li[aria-current]{background:#8882;border-radius:.3rem}ol.steps li.later{opacity:.45}
.bar{display:flex;gap:.5rem;align-items:center}.bar output{min-width:6rem;text-align:center}
button{font:inherit;padding:.2rem .8rem}
#says{min-height:3rem;font-weight:600}#says.fault{color:var(--fault)}
.row{display:grid;grid-template-columns:7rem 1fr;gap:.2rem 1rem;padding:.45rem .6rem;border:1px solid transparent;
border-bottom-color:var(--line)}.row.acts{border-color:var(--accent);border-radius:.3rem}
.row.down .log{opacity:.35}.name{font-weight:600}.signs{grid-column:2;font-size:.85rem;opacity:.85}
.sign{border:1px solid var(--line);border-radius:1rem;padding:0 .5rem;margin-right:.3rem}
.sign.leads{border-color:var(--accent);color:var(--accent);font-weight:600}
.sign.bad{border-color:var(--fault);color:var(--fault)}.sign.good{border-color:var(--sound);color:var(--sound)}
.log{display:flex;align-items:stretch;min-height:2.3rem;gap:.25rem}
.cell{display:inline-flex;min-width:2.2rem;justify-content:center;align-items:center;border:2px solid;
border-radius:.25rem;font-weight:600}.key .cell{min-width:1.4rem}
.cell.above{border-style:dashed;font-weight:400}.cell.fresh{box-shadow:0 0 0 3px #1a7f3766}
.cell.gone{opacity:.45;text-decoration:line-through;background:#b3261e33}
.high{border-left:3px solid var(--accent);margin:0 .15rem;font-size:.7rem;padding-left:.2rem;color:var(--accent)}
.e0{border-color:#57606a}.e1{border-color:#8250df}.e2{border-color:#bf8700}.e3{border-color:#1b7c83}
"""
PAGE_SCRIPT: Final = """\
"use strict";
const plays = JSON.parse(document.getElementById("plays").textContent);
const stage = document.getElementById("stage"), drawn = document.getElementById("drawn");
let play = plays[0], at = 0;

function make(kind, names, text) {
  const made = document.createElement(kind);
  made.className = names;
  if (text !== undefined) made.textContent = text;
  return made;
}

function same(one, other) {
  return one && other && one[0] === other[0] && one[1] === other[1];
}

function logOf(now, before, start) {
  const log = make("div", "log"), old = before ? before.log : now.log;
  let kept = 0;
  while (kept < now.log.length && kept < old.length && same(now.log[kept], old[kept])) kept += 1;
  now.log.forEach(([record, epoch], offset) => {
    if (offset === now.high_watermark) log.append(make("span", "high", "high watermark"));
    const names = ["cell", "e" + epoch % 4];
    if (offset >= now.high_watermark) names.push("above");
    if (offset >= kept && before) names.push("fresh");
    if (offset < start) names.push("gone");
    const cell = make("span", names.join(" "), record);
    cell.title = `record ${record} at offset ${offset}, leader epoch ${epoch}`;
    log.append(cell);
  });
  if (now.high_watermark >= now.log.length) log.append(make("span", "high", "high watermark"));
  for (const [record, epoch] of old.slice(kept)) log.append(make("span", `cell gone e${epoch % 4}`, record));
  return log;
}

function signsOf(state, broker) {
  const all = [
    ["leads", state.leader === broker.broker, "leads"],
    ["takes itself for the leader", broker.takes_itself_for_leader && state.leader !== broker.broker, "bad"],
    ["down", !broker.up, "bad"], ["cut off", broker.cut_off, "bad"], ["slow", broker.slow, "bad"],
    ["in sync", state.in_sync.includes(broker.broker), "good"], ["eligible", broker.eligible, "good"],
  ].filter(([, holds]) => holds);
  return all.length ? all : [["lags", true, "bad"]];
}

function row(name, content, signs, names) {
  const made = make("div", "row " + names), line = make("div", "signs");
  for (const [text, , kind] of signs) line.append(make("span", "sign " + kind, text));
  made.append(make("span", "name", name), content, line);
  return made;
}

function client(state) {
  const signs = state.sent.map((word, index) => {
    const lost = state.harm.includes(index + 1);
    const kind = lost || word === "refused" ? "bad" : word === "acknowledged" ? "good" : "";
    return [`record ${index + 1}: ${word}${lost ? ", harmed" : ""}`, true, kind];
  });
  return row("producer", make("span", ""), signs, "");
}

function consumer(reader) {
  const place = (offset) => (offset < 0 ? "none" : offset), signs = [
    [`reads next: offset ${place(reader.place)}`, true, ""], [`committed: ${place(reader.committed)}`, true, ""],
  ];
  if (reader.hand) signs.push([`has record ${reader.hand} in hand`, true, "leads"]);
  reader.handled.forEach((count, index) => {
    if (count) signs.push([`record ${index + 1} handled${count > 1 ? ` ${count} times` : ""}`, true,
      count > 1 ? "bad" : "good"]);
  });
  return row("consumer", make("span", ""), signs, "");
}

function draw() {
  const state = play.states[at], before = at ? play.states[at - 1] : null;
  const says = document.getElementById("says");
  says.textContent = at ? `${play.faults[at - 1] ? "Fault: " : ""}${play.says[at - 1]}` : "So it begins.";
  says.className = at && play.faults[at - 1] ? "fault" : "";
  document.getElementById("at").textContent = `step ${at} of ${play.says.length}`;
  drawn.replaceChildren(client(state), ...state.brokers.map((broker, index) => {
    const names = [broker.up ? "" : "down", at && play.brokers[at - 1] === broker.broker ? "acts" : ""].join(" ");
    const log = logOf(broker, before && before.brokers[index], state.log_start || 0);
    return row(`broker ${broker.broker}`, log, signsOf(state, broker), names);
  }));
  if (state.reader) drawn.append(consumer(state.reader));
  for (const section of document.querySelectorAll("section.play")) {
    const mine = section.id === play.name;
    section.hidden = !mine;
    if (!mine) continue;
    section.querySelector(".settings").after(stage);
    section.querySelector(".close").hidden = at < play.says.length;
    section.querySelectorAll("ol.steps li").forEach((line, index) => {
      line.classList.toggle("later", index >= at);
      if (index === at - 1) line.setAttribute("aria-current", "step");
      else line.removeAttribute("aria-current");
    });
  }
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === "#" + play.name) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
}

function go(number) {
  at = Math.max(0, Math.min(number, play.says.length));
  history.replaceState(null, "", at ? `#${play.name}/${at}` : `#${play.name}`);
  draw();
  stage.scrollIntoView({ block: "nearest" });
}

function byAddress() {
  const [name, number] = decodeURIComponent(location.hash.slice(1)).split("/");
  play = plays.find((one) => one.name === name) || plays[0];
  at = Math.max(0, Math.min(Number(number) || 0, play.says.length));
  draw();
  if (location.hash) stage.scrollIntoView({ block: "nearest" });
}

const ways = {
  first: () => go(0), back: () => go(at - 1), on: () => go(at + 1), last: () => go(play.says.length),
};
const keys = { ArrowRight: "on", ArrowLeft: "back", Home: "first", End: "last" };
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || !keys[event.key]) return;
  event.preventDefault();
  ways[keys[event.key]]();
});
document.addEventListener("click", (event) => {
  const way = event.target.dataset && event.target.dataset.go;
  if (way) ways[way]();
  const line = event.target.closest("ol.steps li");
  if (line) go([...line.parentNode.children].indexOf(line) + 1);
});
window.addEventListener("hashchange", byAddress);
if (plays.length) {
  stage.hidden = false;
  byAddress();
}
"""
