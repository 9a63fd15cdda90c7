"use strict";
// Fetches the live part of a page again, shows ages, copies commands. Without it every page reads and every form works.
(() => {
  const units = [[86400, "d"], [3600, "h"], [60, "min"]];

  function age(at) {
    const seconds = Math.max(0, (Date.now() - at) / 1000);
    for (const [size, sign] of units) if (seconds >= 2 * size) return `${Math.floor(seconds / size)} ${sign} ago`;
    return `${Math.floor(seconds)} s ago`;
  }

  function showAges() {
    for (const time of document.querySelectorAll("time[data-age]")) {
      time.title ||= time.textContent;
      const at = Date.parse(time.dateTime);
      time.textContent = at > Date.now() + 2000 ? new Date(at).toLocaleString() : age(at);
    }
  }

  function offerCopies() {
    for (const from of document.querySelectorAll("[data-copy]:not([data-offered])")) {
      from.dataset.offered = "";
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = "Copy";
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(from.textContent);
        button.textContent = "Copied";
      });
      from.after(button);
    }
  }

  const poll = document.querySelector(".poll[data-every]");
  let tag = "";

  async function fetchAgain() {
    if (document.hidden) return;
    const headers = { "X-Fragment": "1" };
    if (tag) headers["If-None-Match"] = tag;
    let answer;
    try {
      answer = await fetch(location.href, { headers, cache: "no-store", signal: AbortSignal.timeout(10000) });
    } catch {
      poll.classList.add("silent");
      return;
    }
    poll.classList.remove("silent");
    if (answer.status === 401) return location.reload();
    if (answer.status === 304) return;
    const text = await answer.text();
    if (!answer.headers.get("content-type")?.startsWith("text/html")) return;
    tag = answer.headers.get("etag") || "";
    if (poll.contains(document.activeElement) && document.activeElement.tagName !== "BODY") return;
    const open = [...poll.querySelectorAll("details")].map((one) => one.open);
    const scrolled = [...poll.querySelectorAll(".lines")].map((one) => one.scrollHeight - one.scrollTop - one.clientHeight);
    poll.innerHTML = text;
    poll.querySelectorAll("details").forEach((one, at) => { one.open = open[at] ?? one.open; });
    poll.querySelectorAll(".lines").forEach((one, at) => { if ((scrolled[at] ?? 0) < 40) one.scrollTop = one.scrollHeight; });
    // What may be done depends on the state: a page whose state has changed is loaded whole.
    const actions = document.getElementById("actions");
    const state = poll.querySelector(".lead .badge")?.textContent;
    if (actions && state && actions.dataset.state !== state) location.reload();
    showAges();
    offerCopies();
  }

  showAges();
  offerCopies();
  setInterval(showAges, 1000);
  if (poll) {
    setInterval(fetchAgain, 1000 * Number(poll.dataset.every));
    document.addEventListener("visibilitychange", fetchAgain);
  }
})();
