"""Pages of what a verb answered last: the advisor's findings, rescued records, settings in force. A form asks the verb
again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from twinshore.advisor.core.advice_report import (
    Advice,
    AdviceDifference,
    compare_advices,
    describe_verdict,
    from_values,
)
from twinshore.advisor.core.model import Finding, Severity
from twinshore.config.errors import ConfigError
from twinshore.config.sentences import count_phrase, format_time, join_names
from twinshore.server.core.catalogue import JSON, Role
from twinshore.server.core.jobs import has_ended
from twinshore.server.core.snapshots import BEHIND, FINE, TROUBLE, UNKNOWN
from twinshore.server.html import Child, Markup, button, field, link, render, table, tag
from twinshore.server.layout import PAGE_SIZE, Page, Visit, actions, badge, card, filters, path_to, when
from twinshore.server.verbs import operation_of
from twinshore.state.core.platform_values import JobRow
from twinshore.state.log import AuditFilter
from twinshore.state.platform import JobFilter

ADVISE, RESCUES, SETTINGS = "advise", "switch rescue list", "settings show"
# Kinds of audit rows after which a report is not what is so now.
CHANGES: dict[str, tuple[str, ...]] = {ADVISE: (), RESCUES: ("rescue", "reinject"), SETTINGS: ("setting",)}
# What the advisor's page compares with.
EARLIER_MS = 7 * 86_400_000
# Warnings may stand behind the answer.
LINES_READ = 100
SEVERITY_RANKS = {Severity.CRITICAL: TROUBLE, Severity.WARNING: BEHIND}


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a job of the verb printed as JSON, and its other last lines."""

    row: JobRow
    values: Any
    said: tuple[str, ...]


def _jobs(visit: Visit, operation: str) -> list[JobRow]:
    """The newest jobs of the verb that print JSON."""
    found = visit.store.jobs.page(JobFilter(operation=operation), limit=PAGE_SIZE)
    return [row for row in found if json.loads(row.arguments).get(JSON)]


def _answer(visit: Visit, row: JobRow) -> _Answer | None:
    lines = visit.store.jobs.tail(row.id, LINES_READ)
    for line in reversed(lines):
        try:
            return _Answer(row, json.loads(line.text), tuple(one.text for one in lines if one is not line))
        except ValueError:  # a warning
            continue
    return None


# Makes the page of an answer; with the jobs before.
_Show = Callable[[_Answer, Sequence[JobRow]], Page]


def _report(visit: Visit, operation: str, title: str, jobs: list[JobRow], show: _Show, *inputs: Child) -> Page:
    """The page of the verb's last answer, or of what is not known yet, with the form that asks again."""
    one = operation_of(operation)
    if not visit.caller.may(one.rule.role):
        return Page(title, f"This page needs the role {one.rule.role}.", every_s=0, status=403)
    looks = [row for row in jobs if has_ended(row)]
    found = _answer(visit, looks[0]) if looks else None
    if found:
        page = show(found, looks[1:])
        if found.said:
            page.rank = max(page.rank, UNKNOWN)
            page.live = render([tag("p", line, class_="remark") for line in found.said], page.live)
    elif looks:
        page = Page(title, f"The last look failed: {looks[0].sentence}", rank=TROUBLE)
    else:
        page = Page(title, "Nothing is known yet: ask a worker to look.", rank=UNKNOWN)
    newest = [row for kind in CHANGES[operation] for row in visit.store.audit.page(AuditFilter(kind=kind), limit=1)]
    if changed_ms := max((row.at_ms for row in newest if not looks or row.at_ms > looks[0].created_ms), default=0):
        page.rank = max(page.rank, UNKNOWN)
        page.lead = render("Changed ", when(changed_ms), ", after the last look. ", page.lead)
    is_looking = bool(jobs) and not has_ended(jobs[0])
    page.every_s = 2 if is_looking else 0
    if is_looking:
        page.live = render(tag("p", link(path_to("jobs", jobs[0].id), "A worker looks now.")), page.live)
    hidden = tag("input", type="hidden", name=JSON, value="on")
    form = visit.form(path_to("do", one.path), hidden, *inputs, tag("p", button("Look again" if jobs else "Look")))
    page.fixed = render(card("Look", form), page.fixed)
    return page


# -- rescued records


def rescue_page(visit: Visit) -> Page:
    """Which records did fail-backs save, and were they written back?"""
    return _report(visit, RESCUES, "Rescue", _jobs(visit, RESCUES), lambda found, _: _rescues(found))


def _rescues(found: _Answer) -> Page:
    cells = [_rescue_cells(one) for one in found.values[:PAGE_SIZE]]
    left = sum(1 for one in found.values if not _is_whole(one))
    lead = f"{count_phrase(len(found.values), 'rescue')}, {left} of them not written back whole."
    heads = ["Where they were", "#Offsets", "#Records", "Read there by", "Written back", "What helps"]
    none = "none that could be read" if found.said else "nothing was rescued"
    shown = table(heads, cells, none=none, caption="Rescued records")
    live = render(tag("p", "as of ", when(found.row.updated_ms)), shown)
    return Page("Rescue", lead, live, rank=BEHIND if left else FINE)


def _is_whole(one: dict[str, Any]) -> bool:
    return not one["committed"] or any(some["whole"] and some["committed"] for some in one["written_again"] or ())


def _rescue_cells(one: dict[str, Any]) -> list[Child]:
    place = f"{one['topic']}-{one['partition']} of {one['cluster']}"
    again = "; ".join(f"{some['records']:,} to {some['topic']}" for some in one["written_again"] or ())
    if one["file"]:
        name = PurePath(one["file"]).name
        helps = link(path_to("do", "switch-rescue-reinject", files=name), "Write back")
    else:
        helps = link(path_to("do", "switch-rescue-export"), "Write the files first")
    records = f"{one['records']:,}, {one['committed']:,} committed"
    offsets = f"{one['first']:,} to {one['end'] - 1:,}"
    return [place, offsets, records, join_names(one["read_by"] or ()) or "-", again or "not yet", helps]


# -- settings


def settings_page(visit: Visit) -> Page:
    """Which settings are in force, and where does each come from?"""
    return _report(visit, SETTINGS, "Settings", _jobs(visit, SETTINGS), lambda found, _: _settings(visit, found))


def _settings(visit: Visit, found: _Answer) -> Page:
    values: list[dict[str, Any]] = found.values
    wanted = visit.text("search")
    changed = [one for one in values if one["source"] != "default"]
    refused = [one for one in values if one["refused"]]
    shown = [one for one in values if wanted in one["key"]] if wanted else changed
    lead = f"{len(changed)} of {len(values)} settings are not as by default; {len(refused)} of the store do not fit."
    cells = [_setting_cells(visit, one) for one in shown[:PAGE_SIZE]]
    live = render(
        tag("p", "as the worker that looked has them, as of ", when(found.row.updated_ms)),
        filters(visit, field("Key", "search", value=wanted, help_="Empty: those that are not as by default.")),
        table(["Setting", "Value", "From", "Since", "Change"], cells, none="no such setting", caption="Settings"),
    )
    return Page("Settings", lead, live, rank=TROUBLE if refused else FINE)


def _setting_cells(visit: Visit, one: dict[str, Any]) -> list[Child]:
    value = json.dumps(one["value"], ensure_ascii=False)[:200]
    source = f"{one['source']}, {one['set_by']}" if one["set_by"] else one["source"]
    change = None
    if one["is_live"] and visit.caller.may(Role.ADMIN):
        change = link(path_to("do", "settings-set", key=one["key"]), "Set")
    refused = tag("small", f" not in force: {one['refused']}") if one["refused"] else None
    return [
        one["key"],
        render(tag("code", value), refused),
        source,
        when(one["changed_ms"]) if one["set_by"] else "-",
        change,
    ]


# -- advisor


def advisor_page(visit: Visit) -> Page:
    """What can lose a message here, which command helps, and what is new?"""
    cluster = visit.text("cluster")
    chosen = field("Cluster", "cluster", value=cluster, help_="Empty: the first of the settings.")
    jobs = [(row, str(json.loads(row.arguments).get("cluster", ""))) for row in _jobs(visit, ADVISE)]
    ours = [row for row, of in jobs if cluster in ("", of)]
    page = _report(visit, ADVISE, "Advisor", ours, lambda found, before: _advice(visit, found, before), chosen)
    asked = {of for _, of in jobs}
    others = [(path_to("advisor", cluster=one), one) for one in sorted(asked - {cluster, ""})]
    page.fixed = render(page.fixed, card("Other clusters", actions(others)) if others else None)
    return page


def _advice(visit: Visit, found: _Answer, before: Sequence[JobRow]) -> Page:
    try:
        advice = from_values(found.values, found.row.id)
    except ConfigError:
        return Page("Advisor", f"The last look failed: {found.row.sentence}", rank=TROUBLE)
    findings = [_finding_cells(one) for one in advice.findings[:PAGE_SIZE]]
    hidden = len(advice.findings) - len(findings)
    heads = ["Risk", "Where", "What", "Remedy"]
    earlier = _earlier(visit, found.row, before, advice.cluster)
    live = render(
        tag("p", f"cluster {advice.cluster}, as of ", when(advice.at_ms)),
        _since(compare_advices(earlier, advice)) if earlier else None,
        card("Findings", table(heads, findings, none="no finding", caption="Findings")),
        tag("p", f"and {hidden} findings more") if hidden else None,
        card("Not seen", tag("ul", [tag("li", f"{one.what}: {one.why}") for one in advice.unseen]))
        if advice.unseen
        else None,
    )
    rank = max((SEVERITY_RANKS.get(one.severity, FINE) for one in advice.findings), default=FINE)
    return Page("Advisor", describe_verdict(advice), live, rank=rank)


def _earlier(visit: Visit, row: JobRow, before: Sequence[JobRow], cluster: str) -> Advice | None:
    """The newest advice on the cluster that is a week older, or else the oldest one."""
    old = [one for one in before if row.created_ms - one.created_ms >= EARLIER_MS] or before[::-1]
    found = _answer(visit, old[0]) if old else None
    try:
        advice = from_values(found.values if found else None, "earlier")
    except ConfigError:
        return None
    return advice if advice.cluster == cluster else None


def _since(found: AdviceDifference) -> Markup:
    def named(findings: Sequence[Finding]) -> Markup:
        return tag("ul", [tag("li", f"{one.subject}: {one.says}") for one in findings[:PAGE_SIZE]])

    new, gone = count_phrase(len(found.new), "finding"), count_phrase(len(found.gone), "finding")
    said = f"Since {format_time(found.since_ms)}: {new} new, {gone} resolved, {found.stays} as before."
    unsure = " Some may be resolved only because they could not be read." if found.unsure else ""
    return card(
        "Changed",
        tag("p", said, unsure),
        render(tag("h3", "New"), named(found.new)) if found.new else None,
        render(tag("h3", "Resolved"), named(found.gone)) if found.gone else None,
    )


def _finding_cells(one: Finding) -> list[Child]:
    what = render(one.says, tag("small", f" {one.risk} {one.evidence}"))
    commands = tag("pre", tag("code", "\n".join(one.commands)), data_copy=True) if one.commands else None
    rank = SEVERITY_RANKS.get(one.severity, FINE)
    return [badge(rank, str(one.severity)), one.subject, what, render(commands, one.by_hand)]


# What a form that asks for a page's report leads back to, by operation.
REPORTS = {ADVISE: "/advisor", RESCUES: "/rescue", SETTINGS: "/settings"}
PAGES: dict[str, Callable[[Visit], Page]] = {
    "/advisor": advisor_page,
    "/rescue": rescue_page,
    "/settings": settings_page,
}
