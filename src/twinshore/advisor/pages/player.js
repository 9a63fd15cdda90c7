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
