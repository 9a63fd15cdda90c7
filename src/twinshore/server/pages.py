"""The console's pages of links, topics, groups, switches, proxies, incidents and changes. All read the store alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from twinshore.monitoring.core.alerts import describe_marks
from twinshore.monitoring.watchers import find_living_monitors
from twinshore.proxy.operations.breakers import list_breakers, list_proxy_instances
from twinshore.proxy.operations.traffic import parse_query, query_traffic
from twinshore.server.core.catalogue import Role
from twinshore.server.core.snapshots import (
    BEHIND,
    DIFFERS,
    FINE,
    TROUBLE,
    UNKNOWN,
    incident_values,
    topic_subject,
)
from twinshore.server.core.words import amount, hold_sentence, seconds, topic_sentence, verdict
from twinshore.server.drawings import cluster_map, offset_bar, rate_line
from twinshore.server.html import Child, Markup, field, link, render, table, tag
from twinshore.server.layout import (
    PAGE_SIZE,
    Page,
    Visit,
    actions,
    as_of,
    badge,
    card,
    count_of,
    filters,
    judged,
    message_page,
    next_page,
    offers,
    path_to,
    values_table,
    when,
)
from twinshore.state.core.platform_values import SnapshotKind, SnapshotRow
from twinshore.state.core.values import AlarmRow, IncidentRow
from twinshore.state.incident_log import IncidentFilter
from twinshore.state.log import AuditFilter
from twinshore.state.platform import SnapshotFilter, digest_of
from twinshore.switch.core.steps import SwitchState, find_topics_left_by_force
from twinshore.switch.operations.plan import escape_topic
from twinshore.switch.operations.show import list_switches

SERIES_MINUTES = 24 * 60
SWITCHES_SHOWN, SWITCHES_READ = 30, 200


def overview_page(visit: Visit) -> Page:
    """Is everything the same everywhere, and what would I lose now?"""
    row = visit.store.snapshots.of(SnapshotKind.OVERVIEW, "all")
    values = json.loads(row.value) if row else None
    if row is None or values is None:
        return Page("Overview", verdict(None))
    drawn = cluster_map(values["links"], values["silent"])
    links = table(
        ["Link", "State", "#Records behind", "#Oldest missing"],
        [
            [
                link(path_to("links", one["link"]), one["link"]),
                badge(one["rank"], one["state"]),
                amount(one["lag"]),
                seconds(one["recovery_point_s"]),
            ]
            for one in values["links"]
        ],
        caption="Links, the worst first",
    )
    worst = [
        [_topic_link(one["subject"]), badge(one["rank"], one["state"]), amount(one["lag"])] for one in values["worst"]
    ]
    live = render(
        tag("p", as_of(row.at_ms, visit.now_ms)),
        [_hold(view.state, visit.now_ms) for view in list_switches(visit.store, open_only=True)],
        card("Map", drawn) if drawn else None,
        card("Wrong now", _incident_list(values["incidents"]), table(["Topic", "State", "#Behind"], worst))
        if worst or values["incidents"]
        else None,
        card("Links", links),
    )
    return judged(visit, Page("Overview", verdict(values), live), [row])


def _hold(state: SwitchState, now_ms: int) -> Markup:
    """Writers that wait: what can be done about it."""
    said = hold_sentence(state, now_ms)
    onward = link(path_to("do", "switch-resume", which=state.id), "Go on")
    back = None if state.committed else link(path_to("do", "switch-rollback", which=state.id), "Roll back")
    return tag("div", tag("strong", said), " ", onward, " ", back, class_="hold", role="alert")


def _topic_link(subject: str) -> Markup:
    name, _, topic = subject.partition("/")
    return link(path_to("topics", name, topic), topic, tag("small", f" {name}"))


def _incident_list(found: list[dict[str, Any]]) -> Markup | None:
    items = [
        tag(
            "li",
            badge(DIFFERS if one["differs"] else TROUBLE, one["kind"]),
            " ",
            link(path_to("incidents", str(one["id"])), _place(one)),
            f": {one['sentence']} ",
            when(one["opened_ms"]),
        )
        for one in found
    ]
    return tag("ul", items, class_="incidents") if items else None


def _place(one: dict[str, Any]) -> str:
    partition = f"-{one['partition']}" if one["partition"] >= 0 else ""
    return f"{one['topic']}{partition}" if one["topic"] else one["link"]


# -- links


def _after(visit: Visit) -> tuple[int, int, str] | None:
    parts = visit.text("after").split(",")
    try:
        return int(parts[0]), int(parts[1]), parts[2]
    except (IndexError, ValueError):
        return None


def _narrow(visit: Visit, *names: str) -> Markup:
    inputs = [field(name.capitalize(), name, value=visit.text(name)) for name in names]
    return filters(visit, inputs)


# What a list shows of a snapshot, by its row and values.
_Cells = Callable[[SnapshotRow, Mapping[str, Any]], list[Child]]


def _list_page(
    visit: Visit, kind: SnapshotKind, heads: Sequence[str], cells: _Cells, *narrow: str, none: str, more: Child = None
) -> Page:
    """The snapshots of a kind, the worst first."""
    wanted = SnapshotFilter(kind, visit.text("link"), visit.text("state"), visit.text("search"), _after(visit))
    found = visit.store.snapshots.page(wanted, limit=PAGE_SIZE)
    rows = [[*cells(row, json.loads(row.value)), as_of(row.at_ms, visit.now_ms)] for row in found]
    things, bad = f"{kind}s", sum(1 for row in found if row.rank >= BEHIND)
    lead = f"{bad} of the {things} shown need a look." if bad else f"All {things} shown are fine."
    place = f"{found[-1].rank},{found[-1].lag},{digest_of(found[-1].subject)}" if found else ""
    shown = table([*heads, "Seen"], rows, none=none, caption=things.capitalize())
    fixed = render(_narrow(visit, *narrow), next_page(visit, "after", place, len(found)), more)
    return judged(visit, Page(things.capitalize(), lead if found else f"No {things}.", shown, fixed), found)


def links_page(visit: Visit) -> Page:
    """Which links are there, and how are they?"""

    def cells(row: SnapshotRow, values: Mapping[str, Any]) -> list[Child]:
        return [
            link(path_to("links", row.link), row.link),
            badge(row.rank, row.state),
            amount(row.lag),
            seconds(values["recovery_point_s"]),
            amount(values.get("records_per_s")),
            values["says"],
        ]

    heads = ["Link", "State", "#Behind", "#Oldest missing", "#Records/s", "Says"]
    add = link(path_to("do", "link-add"), "Add a link") if visit.caller.may(Role.ADMIN) else None
    return _list_page(visit, SnapshotKind.LINK, heads, cells, "search", none="none", more=add)


def link_page(visit: Visit, name: str) -> Page:
    """How is this link, and what does it carry?"""
    row = visit.store.snapshots.of(SnapshotKind.LINK, name)
    if row is None:
        return message_page(name, f"There is no link {name}, or no worker has looked at it yet.", status=404)
    values = json.loads(row.value)
    worst = visit.store.snapshots.page(SnapshotFilter(SnapshotKind.TOPIC, name), limit=20)
    minute = visit.now_ms // 60_000
    drawn = rate_line(visit.store.snapshots.series(name, minute - SERIES_MINUTES), minute, SERIES_MINUTES)
    topics = table(
        ["Topic", "State", "#Behind"],
        [[_topic_link(one.subject), badge(one.rank, one.state), amount(one.lag)] for one in worst],
        none="no topic",
        caption="Topics, the worst first",
    )
    incidents = [incident_values(one) for one in visit.store.incidents.rows(name, open_only=True)[:20]]
    figures = values_table(
        [
            ("State", badge(row.rank, row.state)),
            ("Records behind", amount(row.lag)),
            ("Oldest missing record", seconds(values["recovery_point_s"])),
            ("Records per second", amount(values.get("records_per_s"))),
            ("Bytes per second", amount(values.get("bytes_per_s"), "B")),
            ("Latency, 99 of 100", "unknown" if values.get("p99_ms") is None else f"{values['p99_ms']:.1f} ms"),
            ("Seen", as_of(row.at_ms, visit.now_ms)),
        ]
    )
    live = render(
        card("Now", figures, drawn),
        card("Incidents", _incident_list(incidents)) if incidents else None,
        card("Topics", topics, link(path_to("topics", link=name), "All topics of this link")),
    )
    shown = offers(visit, "link-pause", "link-resume", "link-throttle", "link-filter", "prove", link=name)
    return judged(visit, Page(name, values["says"], live, card("Change", shown)), [row])


def topics_page(visit: Visit) -> Page:
    """Which topics are there, the worst first?"""

    def cells(row: SnapshotRow, values: Mapping[str, Any]) -> list[Child]:
        return [
            _topic_link(row.subject),
            badge(row.rank, row.state),
            str(values["partitions"]),
            amount(row.lag),
            seconds(values["recovery_point_s"]),
            when(values["proven_ms"]),
        ]

    heads = ["Topic", "State", "#Partitions", "#Behind", "#Oldest missing", "Compared"]
    return _list_page(visit, SnapshotKind.TOPIC, heads, cells, "search", "link", "state", none="no such topic")


def topic_page(visit: Visit, name: str, topic: str) -> Page:
    """Is this topic the same on both sides?"""
    row = visit.store.snapshots.of(SnapshotKind.TOPIC, topic_subject(name, topic))
    if row is None:
        return message_page(topic, f"{name} has no topic {topic}, or no worker has looked at it yet.", status=404)
    values = json.loads(row.value)
    source, _, target = name.partition("->")
    known = values["lag_records"] is not None
    is_live = known and row.state != "unknown"
    parts = [
        [
            str(one["partition"]),
            f"{one['start']:,}",
            f"{one['twin_end']:,}",
            f"{one['source_end']:,}",
            f"{one['source_end'] - one['twin_end']:,}" if known else "unknown",
            offset_bar(one),
            _proof(one),
            _flow(one["state"] if is_live or one["state"] != "flowing" else "unknown"),
        ]
        for one in values["partitions_shown"]
    ]
    heads = [
        "#Partition",
        "#Start",
        f"#End on {target}",
        f"#End on {source}",
        "#Behind",
        "Offsets",
        "Compared",
        "State",
    ]
    hidden = values["partitions"] - len(parts)
    groups = visit.store.snapshots.page(SnapshotFilter(SnapshotKind.GROUP, name), limit=20)
    reading = [one for one in groups if topic in {part["topic"] for part in json.loads(one.value)["offsets"]}]
    live = render(
        tag("p", as_of(row.at_ms, visit.now_ms)),
        card("Incidents", _incident_list(values["incidents"])) if values["incidents"] else None,
        card(
            "Partitions",
            table(heads, parts, caption="Offsets of both sides, as the mirror last committed them"),
            tag("p", f"and {hidden} partitions more") if hidden > 0 else None,
        ),
        card("Groups", tag("ul", [tag("li", _group_link(one.subject)) for one in reading])) if reading else None,
    )
    escaped = escape_topic(topic)
    shown = render(
        offers(visit, "switch-run", "switch-drill", topics=escaped, to=target),
        offers(visit, "prove", "mirror-records", "mirror-resume", topic=topic, link=name),
        offers(visit, "protection-set", topics=topic),
        offers(visit, "link-pause", topic=escaped, link=name),
        actions([(path_to("audit", topic=topic), "Changes")]),
    )
    return judged(visit, Page(topic, topic_sentence(values, row.state, name), live, card("Change", shown)), [row])


def _flow(state: str) -> Markup:
    return badge({"flowing": FINE, "unknown": UNKNOWN}.get(state, TROUBLE), state)


def _proof(one: dict[str, Any]) -> Child:
    if one["proof"] == "differs":
        return render(badge(DIFFERS, "differs"), " at ", f"{one['proven_to']:,}")
    if not one["proven_ms"]:
        return "not yet"
    return render(f"identical to {one['proven_to']:,}, read whole ", when(one["proven_ms"]))


# -- groups


def _group_link(subject: str) -> Markup:
    name, _, group = subject.partition("/")
    return link(path_to("groups", name, group), group, tag("small", f" {name}"))


def groups_page(visit: Visit) -> Page:
    """Where does each group stand on both sides?"""

    def cells(row: SnapshotRow, values: Mapping[str, Any]) -> list[Child]:
        sides = f"{values['source_state']} / {values['target_state']}"
        return [_group_link(row.subject), values["kind"], sides, badge(row.rank, row.state), amount(row.lag)]

    heads = ["Group", "Kind", "Members here / there", "State", "#Records read again"]
    none = "no group has committed an offset"
    return _list_page(visit, SnapshotKind.GROUP, heads, cells, "search", "link", none=none)


def group_page(visit: Visit, name: str, group: str) -> Page:
    """If a side is lost now, what does this group read again?"""
    row = visit.store.snapshots.of(SnapshotKind.GROUP, topic_subject(name, group))
    if row is None:
        return message_page(group, f"{name} has no group {group}, or no worker has looked at it yet.", status=404)
    values = json.loads(row.value)
    source, _, target = name.partition("->")
    again = "an unknown number of records" if row.lag < 0 else f"{row.lag:,} records"
    lead = f"If {source} is lost now, {group} reads {again} again on {target}."
    parts = [
        [
            f"{one['topic']}-{one['partition']}",
            _offset(one["source"]),
            _offset(one["expected"]),
            _offset(one["target"]),
            _offset(one["behind"]),
        ]
        for one in values["offsets"]
    ]
    heads = ["Partition", f"#On {source}", f"#So on {target}", f"#Has on {target}", "#Behind"]
    live = render(
        tag("p", as_of(row.at_ms, visit.now_ms)),
        tag("p", values["why"]) if values["why"] else None,
        card("Offsets", table(heads, parts, caption="Committed offsets")),
    )
    shown = render(
        offers(visit, "groups-move", group=group, link=name),
        offers(visit, "proxy-offsets", group=group),
        offers(visit, "switch-run", group=group, to=target),
    )
    return judged(visit, Page(group, lead, live, card("Change", shown)), [row])


def _offset(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


# -- switches


def switch_page(visit: Visit) -> Page:
    """What is being moved, and what was moved?"""
    opened = list_switches(visit.store, open_only=True)
    found = [view for view in list_switches(visit.store, limit=SWITCHES_SHOWN) if view.state.ended]
    lead = f"{len(opened)} switches are under way." if opened else "No switch is under way."
    rows = [
        [
            tag("code", view.id[:8]),
            str(view.state.kind),
            f"{view.state.old} -> {view.state.new}",
            view.state.moves(),
            badge(FINE if view.done else BEHIND if view.state.ended else TROUBLE, str(view.state.state)),
            seconds(view.state.held_s) if view.state.held_s else "-",
            view.state.by,
            when(view.state.begun_ms),
        ]
        for view in (*opened, *found)
    ]
    heads = ["Switch", "Kind", "Homes", "Topics", "State", "#Writers waited", "By", "Began"]
    shown = offers(visit, "switch-drill", "switch-run", "switch-failback", "switch-history", "switch-free")
    live = render(
        [_hold(view.state, visit.now_ms) for view in opened],
        card("History", table(heads, rows, none="nothing was switched yet", caption="Switches")),
    )
    return Page("Switch", lead, live, card("Move", shown), rank=TROUBLE if opened else FINE)


# -- proxies


def proxies_page(visit: Visit) -> Page:
    """Which proxies serve, what do they block, who sends how much?"""
    instances = list_proxy_instances(visit.store)
    serving = [one for one in instances if one["status"] != "gone"]
    breakers = list_breakers(visit.store, {one["id"] for one in serving})
    newest = {(one["name"], one["host"]): one for one in instances}  # what is gone may have been started again
    late = [one for one in newest.values() if one["status"] != "serves"]
    opened = [one for one in breakers if one["open"] or one["tripped_at"]]
    lead = f"{len(late)} of {len(newest)} proxies are behind or gone; {len(opened)} circuit breakers are open."
    links = offers(
        visit, "proxy-breaker-open", "proxy-breaker-limit", "proxy-offsets", "proxy-groups", "proxy-client-audit"
    )
    live = render(
        card("Proxies", _proxy_table(instances[:PAGE_SIZE])),
        card("Circuit breakers", _breaker_table(breakers[:PAGE_SIZE])),
        card("Traffic", _traffic_table(visit)),
    )
    return Page("Proxies", lead, live, card("Change", links), rank=TROUBLE if late else FINE)


def _proxy_table(instances: list[dict[str, Any]]) -> Markup:
    rows = [
        [
            one["name"],
            one["host"],
            badge(FINE if one["status"] == "serves" else TROUBLE, one["status"]),
            when(one["started_ms"]),
            when(one["seen_ms"]),
        ]
        for one in instances
    ]
    heads = ["Proxy", "Host", "State", "Since", "Heard of"]
    return table(heads, rows, none="no proxy has reported", caption="Proxies")


def _breaker_table(breakers: list[dict[str, Any]]) -> Markup:
    rows = [
        [
            one["topic"],
            one["client"],
            one["kind"],
            badge(TROUBLE if one["open"] else FINE, one["status"]),
            one["reason"],
            one["set_by"],
            f"{one['requests']:,}",
            link(path_to("do", "proxy-breaker-close", topic=one["topic"], client=one["client"]), "Close"),
        ]
        for one in breakers
    ]
    heads = ["Topic", "Client", "Of", "State", "Reason", "By", "#Requests", "Change"]
    return table(heads, rows, none="no circuit breaker", caption="Circuit breakers")


def _traffic_table(visit: Visit) -> Markup:
    found = query_traffic(parse_query(visit.text("by") or "topic", "bytes", "5m", "*", "*", 1, 20), visit.store)
    rows = [
        [
            one["subject"],
            one["kind"],
            amount(one["bytes_s"], "B"),
            amount(one["records_s"]),
            amount(one["requests_s"]),
            "-" if one["latency_ms"] is None else f"{one['latency_ms']:.1f}",
            str(one["clients"]),
        ]
        for one in (line.as_values() for line in found.lines)
    ]
    heads = ["Subject", "Kind", "#Bytes/s", "#Records/s", "#Requests/s", "#ms", "#Clients"]
    return table(heads, rows, none="no traffic", caption="Traffic of the last five minutes")


# -- logs


def incidents_page(visit: Visit) -> Page:
    """What made the two sides differ, or stopped something?"""
    before, link_name = visit.text("before"), visit.text("link")
    wanted = IncidentFilter(
        (link_name,) if link_name else (),
        topic=visit.text("topic"),
        open_only=visit.text("open") != "all",
        before=int(before) if before.isdigit() else 0,
    )
    found = visit.store.incidents.page(wanted, limit=PAGE_SIZE)
    rows = [_incident_cells(row) for row in found]
    opened = visit.store.incidents.page(replace(wanted, open_only=True, before=0), limit=PAGE_SIZE)
    lead = f"{count_of(opened)} incidents are open." if opened else "No incident is open."
    more = next_page(visit, "before", str(found[-1].id), len(found)) if found else None
    every = link(path_to("incidents", open="all"), "Closed ones too")
    heads = ["#Id", "Kind", "Where", "Offsets", "Says", "Opened", "Closed"]
    shown = table(heads, rows, none="no incident", caption="Incidents")
    narrowed = render(_narrow(visit, "link", "topic"), every, more)
    return Page("Incidents", lead, shown, narrowed, rank=TROUBLE if opened else FINE)


def _incident_cells(row: IncidentRow) -> list[Child]:
    one = incident_values(row)
    rank = FINE if row.closed_ms is not None else DIFFERS if one["differs"] else TROUBLE
    offsets = "" if one["from_offset"] < 0 else f"{one['from_offset']:,} to {one['to_offset']:,}"
    closed = when(row.closed_ms) if row.closed_ms is not None else "open"
    where = link(path_to("incidents", str(row.id)), _place(one), tag("small", f" {one['link']}"))
    return [str(row.id), badge(rank, one["kind"]), where, offsets, one["sentence"], when(row.opened_ms), closed]


def incident_page(visit: Visit, number: str) -> Page:
    """What happened here, and what helps?"""
    after = int(number) + 1 if number.isdigit() else 0
    found = [row for row in visit.store.incidents.page(IncidentFilter(before=after), limit=1) if str(row.id) == number]
    if not found:
        return message_page("Incident", f"There is no incident {number}.", status=404)
    row = found[0]
    one = incident_values(row)
    policy = row.incident.policy
    facts = values_table(
        [
            ("Link", link(path_to("links", one["link"]), one["link"])),
            ("Where", _topic_link(topic_subject(one["link"], one["topic"])) if one["topic"] else "the whole link"),
            ("Partition", str(one["partition"]) if one["partition"] >= 0 else "-"),
            ("Offsets", "-" if one["from_offset"] < 0 else f"{one['from_offset']:,} to {one['to_offset']:,}"),
            ("What it does", policy.words),
            ("Opened", when(row.opened_ms)),
            ("Closed", when(row.closed_ms) if row.closed_ms is not None else "open"),
        ]
    )
    helps: list[Child] = []
    source, _, target = one["link"].partition("->")
    states = [view.state for view in list_switches(visit.store, limit=SWITCHES_READ)]
    if find_topics_left_by_force(states, [one["topic"]], target, source):
        helps.append(offers(visit, "switch-failback", topics=escape_topic(one["topic"]), old=target))
    if one["topic"] and one["from_offset"] >= 0:
        place = {"topic": one["topic"], "partition": str(max(0, one["partition"])), "link": one["link"]}
        helps.append(offers(visit, "mirror-records", offset=str(one["from_offset"]), **place))
    if one["topic"]:
        helps.append(offers(visit, "mirror-resume", "prove", topic=one["topic"], link=one["link"]))
    shown = card("What helps", helps) if helps else None
    return Page(f"Incident {number}: {one['kind']}", one["sentence"], facts, shown, rank=TROUBLE)


def alarms_page(visit: Visit) -> Page:
    """Which alarms are open?"""
    opened = visit.store.delay.alarms(open_only=True, limit=PAGE_SIZE)
    cleared = [row for row in visit.store.delay.alarms(limit=PAGE_SIZE) if row.cleared_ms is not None]
    is_watched = bool(find_living_monitors(visit.store.delay.watchers(), visit.now_ms))
    blind = "" if is_watched else "No monitor runs, so nothing raises alarms: start `twinshore delay watch`."
    lead = f"{count_of(opened)} alarms are open. {blind}" if opened else blind or "No alarm is open."
    rows = [
        [
            badge(TROUBLE if row.cleared_ms is None else FINE, row.kind),
            row.link,
            row.topic or row.group or "-",
            row.sentence,
            when(row.raised_ms),
            when(row.cleared_ms) if row.cleared_ms is not None else _alarm_actions(visit, row),
        ]
        for row in (*opened, *cleared)
    ]
    heads = ["Alarm", "Link", "Of", "Says", "Raised", "Cleared"]
    shown = table(heads, rows, none="no alarm", caption="Alarms")
    fixed = offers(visit, "delay-webhook-test")
    return Page("Alarms", lead, shown, fixed, rank=TROUBLE if opened else FINE if is_watched else UNKNOWN)


def _alarm_actions(visit: Visit, row: AlarmRow) -> Markup:
    """What was said of an open alarm, and what may be said."""
    said = describe_marks(row, visit.now_ms) or "open"
    return render(said, offers(visit, "delay-alarms-acknowledge", "delay-alarms-silence", number=str(row.id)))


def audit_page(visit: Visit) -> Page:
    """Who changed what?"""
    before = visit.text("before")
    wanted = AuditFilter(
        (visit.text("link"),) if visit.text("link") else (),
        visit.text("kind"),
        visit.text("by"),
        visit.text("topic"),
        visit.text("group"),
        int(before) if before.isdigit() else 0,
    )
    found = visit.store.audit.page(wanted, limit=PAGE_SIZE)
    rows = [
        [when(row.at_ms), row.actor, row.kind, row.subject, row.before or "-", row.after or "-", row.outcome]
        for row in found
    ]
    more = next_page(visit, "before", str(found[-1].id), len(found)) if found else None
    heads = ["When", "Who", "Kind", "What", "Before", "After", "Outcome"]
    shown = table(heads, rows, none="no such change", caption="Changes")
    lead = "Who changed what, the newest first."
    return Page("Audit", lead, shown, render(_narrow(visit, "by", "kind", "topic", "group"), more), every_s=0)


PAGES: dict[str, Callable[[Visit], Page]] = {
    "/": overview_page,
    "/links": links_page,
    "/topics": topics_page,
    "/groups": groups_page,
    "/switch": switch_page,
    "/proxies": proxies_page,
    "/incidents": incidents_page,
    "/alarms": alarms_page,
    "/audit": audit_page,
}
