"""The frame of all pages: navigation, messages, times, forms with their token."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from twinshore import __version__
from twinshore.config.sentences import format_time
from twinshore.server.core.access import Caller
from twinshore.server.core.catalogue import Role
from twinshore.server.core.snapshots import FINE, UNKNOWN
from twinshore.server.core.words import OLD_MS, RANK_WORDS, iso
from twinshore.server.html import Child, Markup, link, render, tag
from twinshore.server.verbs import operation_of
from twinshore.state.core.platform_values import SnapshotRow
from twinshore.state.store import Store

# Address, title, and who sees it.
NAVIGATION = (
    ("/", "Overview", Role.VIEWER),
    ("/links", "Links", Role.VIEWER),
    ("/topics", "Topics", Role.VIEWER),
    ("/groups", "Groups", Role.VIEWER),
    ("/switch", "Switch", Role.VIEWER),
    ("/rescue", "Rescue", Role.OPERATOR),
    ("/proxies", "Proxies", Role.VIEWER),
    ("/incidents", "Incidents", Role.VIEWER),
    ("/alarms", "Alarms", Role.VIEWER),
    ("/advisor", "Advisor", Role.OPERATOR),
    ("/jobs", "Jobs", Role.VIEWER),
    ("/settings", "Settings", Role.OPERATOR),
    ("/do", "Operations", Role.VIEWER),
    ("/audit", "Audit", Role.VIEWER),
    ("/people", "People", Role.ADMIN),
)
PAGE_SIZE = 50


@dataclass(slots=True)
class Visit:
    """One request of a person: who asks for what, and what pages need to answer."""

    store: Store
    caller: Caller
    path: str
    query: Mapping[str, str]
    now_ms: int

    def text(self, name: str) -> str:
        return self.query.get(name, "").strip()

    def form(self, action: str, *children: Child, **attributes: str | None) -> Markup:
        """A form that changes something: it carries the session's token."""
        token = tag("input", type="hidden", name="csrf", value=self.caller.csrf)
        return tag("form", token, *children, method="post", action=action, **attributes)


@dataclass(slots=True)
class Page:
    """What a page answers. `live`: the part that is fetched again while it is shown. `lead`: the answer in words.
    `every_s`: how often; 0: never. `goes_on`: the page that follows by itself.
    """

    title: str
    lead: Child
    live: Child = None
    fixed: Child = None
    every_s: int = 2
    rank: int = 0
    status: int = 200
    goes_on: str = ""

    def fragment(self) -> Markup:
        return tag("div", tag("p", self.lead, class_=f"lead rank-{RANK_WORDS[self.rank]}"), self.live, id="live")

    def digest(self) -> str:
        return hashlib.sha256(self.fragment().encode()).hexdigest()[:32]


def path_to(*parts: str, **query: str) -> str:
    shown = "/" + "/".join(quote(part, safe="") for part in parts)
    kept = {name: value for name, value in query.items() if value}
    return f"{shown}?{urlencode(kept)}" if kept else shown


def when(at_ms: int) -> Markup:
    """A time: in UTC, and as an age where scripts run."""
    return tag("time", format_time(at_ms), datetime=iso(at_ms), data_age=True) if at_ms else Markup("never")


def as_of(at_ms: int, now_ms: int) -> Markup:
    old = now_ms - at_ms > OLD_MS
    return tag("span", "as of ", when(at_ms), " (old)" if old else None, class_="old" if old else "age")


def judged(visit: Visit, page: Page, rows: Sequence[SnapshotRow]) -> Page:
    """The page of these snapshots has the worst one's rank. Of old ones the lead says nothing but their age."""
    page.rank = max((row.rank for row in rows), default=FINE)
    if old := [row.at_ms for row in rows if visit.now_ms - row.at_ms > OLD_MS]:
        some = "" if len(old) == len(rows) else f": {len(old)} of those shown"
        page.lead, page.rank = f"Not known since {format_time(min(old))}{some}.", max(page.rank, UNKNOWN)
    return page


def badge(rank: int, words: str = "") -> Markup:
    return tag("span", words or RANK_WORDS[rank], class_=f"badge rank-{RANK_WORDS[rank]}")


def card(title: str, *children: Child, id_: str | None = None) -> Markup:
    return tag("section", tag("h2", title), *children, class_="card", id=id_)


def count_of(found: Sequence[object]) -> str:
    """How many there are, where at most a page of them was read."""
    return f"{len(found)}{' or more' if len(found) >= PAGE_SIZE else ''}"


def next_page(visit: Visit, name: str, value: str, count: int) -> Markup | None:
    """A link to the entries after these, if there may be some."""
    if count < PAGE_SIZE:
        return None
    kept = {**visit.query, name: value}
    return tag("p", link(f"{visit.path}?{urlencode(kept)}", "Next page", rel="next"), class_="next")


def filters(visit: Visit, *children: Child) -> Markup:
    button = tag("button", "Show", type="submit")
    return tag("form", *children, button, method="get", action=visit.path, class_="filters", role="search")


def command(line: str) -> Markup:
    """The command that does the same."""
    return tag(
        "details",
        tag("summary", "As a command"),
        tag("pre", tag("code", line), data_copy=True),
        class_="command",
    )


def document(page: Page, visit: Visit | None, banner: Child = None) -> Markup:
    """The whole page."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", http_equiv="refresh", content=f"0;url={page.goes_on}") if page.goes_on else None,
        tag("title", f"{page.title} - Twinshore"),
        tag("link", rel="stylesheet", href="/static/console.css"),
        tag("link", rel="icon", href="/static/icon.svg", type="image/svg+xml"),
        tag("script", src="/static/console.js", defer=True),
    )
    poll = {"data_every": page.every_s} if page.every_s and visit is not None else {}
    main = tag(
        "main",
        tag("h1", page.title),
        banner,
        tag("div", page.fragment(), class_="poll", **poll),
        page.fixed,
        id="main",
    )
    body = tag(
        "body",
        link("#main", "Skip to the content", class_="skip"),
        tag("header", link("/", "Twinshore", class_="brand"), _navigation(visit) if visit else None),
        main,
        tag("footer", f"Twinshore {__version__}"),
    )
    return Markup(f"<!doctype html>{tag('html', head, body, lang='en')}")


def _navigation(visit: Visit) -> Markup:
    items = [
        tag("li", link(where, title, aria_current="page" if _is_here(visit.path, where) else None))
        for where, title, role in NAVIGATION
        if visit.caller.may(role)
    ]
    search = tag(
        "form",
        tag("label", "Search", for_="search", class_="hidden"),
        tag(
            "input", id="search", name="search", type="search", placeholder="Search topics", value=visit.text("search")
        ),
        method="get",
        action="/topics",
        role="search",
    )
    out = visit.form("/logout", tag("button", "Log out", type="submit"), class_="logout")
    who = tag("div", link("/account", f"{visit.caller.name} ({visit.caller.role})"), out, class_="who")
    # Where there is little room, this box unfolds the pages, without a script.
    box = tag("input", type="checkbox", id="menu", class_="hidden", autocomplete="off")
    menu = tag("label", "Pages", for_="menu", class_="menu")
    return render(box, menu, tag("nav", tag("ul", items), search, who, aria_label="Pages"))


def _is_here(path: str, where: str) -> bool:
    return path == where if where == "/" else path == where or path.startswith(f"{where}/")


def message_page(title: str, sentence: str, hint: str = "", status: int = 400) -> Page:
    remedy = tag("p", "Try: ", hint) if hint else None
    return Page(title, sentence, remedy, every_s=0, status=status)


def actions(links: Iterable[tuple[str, str]]) -> Markup:
    """Links to what may be done, by address and title."""
    return tag("p", [render(link(where, title), " ") for where, title in links], class_="actions")


def offers(visit: Visit, *operations: str, **query: str) -> Markup:
    """Links to the forms of these operations, filled with these values, but for those that the visitor may not ask."""
    found = {path: operation_of(path).rule for path in operations}
    return actions(
        (path_to("do", path, **query), rule.title) for path, rule in found.items() if visit.caller.may(rule.role)
    )


def values_table(rows: Iterable[tuple[str, Any]]) -> Markup:
    return tag("dl", [render(tag("dt", name), tag("dd", value)) for name, value in rows])
