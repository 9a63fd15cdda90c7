"""Schedules as one page of HTML that needs nothing else: the logs drawn, forwards and backwards by the keyboard. Pure.

The sentences are there without a script. With it one step is drawn at a time, and its address names it: `#acks-1/3` is
the third step of that play.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

from twinshore.fleet.html_page import html_page
from twinshore.loss.partition import begin, damages
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


HOW: Final = "<span class=how>Arrow keys go a step on or back, Home and End to its beginning and end.</span>"
STAGE: Final = """\
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
STYLE: Final = """\
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
SCRIPT: Final = """\
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
