"""The client audit: findings under a policy, as text and as one self-contained HTML page with SVG charts.

Each client is judged alone, so a Spark job can judge them in parallel.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from html import escape
from typing import Any

from twinshore.advisor.core.advice_report import (
    FINDINGS_PER_RULE_MAX,
    describe_counts,
    describe_unjudged,
    render_list,
    render_rule,
    render_unjudged,
)
from twinshore.advisor.core.client_rules import (
    CLIENT_RULES,
    AuditedClient,
    ClientFinding,
    ClientRule,
    ClientUsage,
    UsageByFlow,
    build_client_finding,
    format_size,
)
from twinshore.advisor.core.html_page import html_page
from twinshore.advisor.core.model import SEVERITIES, AdvisorPolicy, BlindSpot, WaivedFinding
from twinshore.config.sentences import count_phrase, format_time
from twinshore.state.core.proxy_values import OTHER_NAMES, TrafficKey, TrafficKind

AUDIT_FORM_VERSION = 1


@dataclass(frozen=True, slots=True)
class ClientAudit:
    """`clients`: number judged. `uses`: their usage."""

    from_ms: int
    to_ms: int
    clients: int
    findings: tuple[ClientFinding, ...]
    waived: tuple[WaivedFinding[ClientFinding], ...]
    unseen: tuple[BlindSpot, ...]
    remarks: tuple[str, ...]
    usages: UsageByFlow
    stretch_ms: int

    def as_values(self, policy: AdvisorPolicy) -> dict[str, Any]:
        return {
            "form": AUDIT_FORM_VERSION,
            "from_ms": self.from_ms,
            "to_ms": self.to_ms,
            "clients": self.clients,
            "exit_code": policy.exit_code(self.findings, self.unseen),
            "findings": [finding.as_values() for finding in self.findings],
            "waived": [
                {
                    **one.finding.as_values(),
                    "waiver": {"reason": one.waiver.reason, "until": one.waiver.until.isoformat()},
                }
                for one in self.waived
            ],
            "unseen": list(map(asdict, self.unseen)),
            "remarks": list(self.remarks),
        }


def judge_client(
    client: AuditedClient, policy: AdvisorPolicy, rules: Sequence[ClientRule] = CLIENT_RULES
) -> list[ClientFinding]:
    """Findings of one client; none for the collective name of clients beyond the limit."""
    if client.name == OTHER_NAMES:
        return []
    return [
        build_client_finding(rule, case)
        for rule in rules
        if rule.name not in policy.off
        for case in rule.judge(client, policy.limits_of(rule))
    ]


def build_client_audit(
    found: Iterable[ClientFinding],
    policy: AdvisorPolicy,
    usages: UsageByFlow,
    span: tuple[int, int, int],
    blind_spots: Sequence[BlindSpot],
) -> ClientAudit:
    """Builds the audit, the most severe findings first. `span`: start, end and chart interval in ms."""
    from_ms, to_ms, stretch_ms = span
    day = datetime.datetime.fromtimestamp(to_ms / 1000, datetime.UTC).date()
    ordered = sorted(found, key=lambda one: (SEVERITIES.index(one.severity), one.rule, one.subject))
    findings, waived = policy.waive(ordered, day)
    names = {key.client for key in usages}
    remarks = list(policy.remarks(ordered, day))
    if OTHER_NAMES in names:
        remarks.append("some clients were too many to be told apart: they are not judged")
    return ClientAudit(
        from_ms,
        to_ms,
        len(names - {OTHER_NAMES}),
        findings,
        waived,
        tuple(blind_spots),
        tuple(remarks),
        usages,
        stretch_ms,
    )


def find_usage(finding: ClientFinding, usages: UsageByFlow) -> ClientUsage:
    """The usage behind a finding; all of the client's if the finding has no topic."""
    found = ClientUsage()
    for key, usage in usages.items():
        if key.client == finding.client and _meant(key, finding):
            found.add(usage)
    return found


def _meant(key: TrafficKey, finding: ClientFinding) -> bool:
    if not finding.topic:
        return key.kind is TrafficKind.CLIENT
    return key.topic == finding.topic and finding.cluster in ("", key.cluster)


def describe_verdict(audit: ClientAudit) -> str:
    found = describe_counts([one.severity for one in audit.findings], len(audit.waived), len(audit.unseen))
    between = f"{format_time(audit.from_ms)} to {format_time(audit.to_ms)}"
    return f"{count_phrase(audit.clients, 'client')}, {between}: {found}"


def describe_client_audit(audit: ClientAudit, *, everything: bool = False) -> Iterator[str]:
    """The verdict, then findings by rule: ten of a rule, or all with `everything`."""
    yield describe_verdict(audit)
    most = len(audit.findings) if everything else FINDINGS_PER_RULE_MAX
    for rule in dict.fromkeys(finding.rule for finding in audit.findings):
        yield ""
        yield from _of_rule([finding for finding in audit.findings if finding.rule == rule], most)
    yield from describe_unjudged(audit.waived, audit.unseen)
    yield from audit.remarks


def _of_rule(findings: list[ClientFinding], most: int) -> Iterable[str]:
    first = findings[0]
    yield f"{first.severity.upper()} {first.rule}: {first.says}"
    yield f"  it costs: {first.costs}"
    for finding in findings[:most]:
        yield f"  {finding.subject}: {finding.evidence}"
        yield f"      cost: {finding.cost}"
        for line in finding.settings:
            yield f"      {line}"
        yield f"      then: {finding.effect}"
    if len(findings) > most:
        yield f"  and {len(findings) - most:,} more: --all shows them, --json has them"


BARS_MAX = 15


def render_audit_page(audit: ClientAudit) -> str:
    title = "How clients use their clusters"
    body = "\n".join(_body(audit))
    head = f"<h1>{title}</h1>\n<p>{escape(describe_verdict(audit))}.</p>"
    return html_page(title, f"{head}\n{body}", "advice.css", "charts.css")


def _body(audit: ClientAudit) -> Iterator[str]:
    for severity in SEVERITIES:
        for rule in dict.fromkeys(one.rule for one in audit.findings if one.severity is severity):
            findings = [finding for finding in audit.findings if finding.rule == rule]
            costs = f"<b>It costs:</b> {escape(findings[0].costs)}."
            yield render_rule(findings, costs, partial(_finding, audit=audit))
    yield _flows("What producers send, bytes", audit, TrafficKind.PRODUCE)
    yield _flows("What consumers are given, bytes", audit, TrafficKind.FETCH)
    yield _requests(audit)
    yield render_unjudged(audit.waived, audit.unseen)
    yield render_list("To be known", audit.remarks)


def _finding(finding: ClientFinding, *, audit: ClientAudit) -> str:
    lines = "".join(f"<pre>{escape(line)}</pre>\n" for line in finding.settings)
    usage = find_usage(finding, audit.usages)
    drawn = draw_timeline(usage.points, (audit.from_ms, audit.to_ms, audit.stretch_ms), "requests a second")
    return (
        f"<p><b>{escape(finding.subject)}</b>: {escape(finding.evidence)}</p>\n<p>Cost:"
        f" {escape(finding.cost)}.</p>\n{drawn}"
        f"{lines}<p>Then: {escape(finding.effect)}.</p>\n"
    )


def _flows(title: str, audit: ClientAudit, kind: TrafficKind) -> str:
    def told(key: TrafficKey, usage: ClientUsage) -> tuple[str, float, str]:
        name = f"{key.client or 'no id'}, {key.topic or 'several topics'} on {key.cluster}"
        return name, float(usage.counter.bytes), format_size(usage.counter.bytes)

    rows = [told(key, usage) for key, usage in audit.usages.items() if key.kind is kind and usage.counter.bytes]
    return _drawn(title, rows)


def _requests(audit: ClientAudit) -> str:
    rows = [
        (key.client or "no id", float(usage.counter.requests), f"{usage.counter.requests:,}")
        for key, usage in audit.usages.items()
        if key.kind is TrafficKind.CLIENT
    ]
    return _drawn("What clients ask, requests", rows)


def _drawn(title: str, rows: list[tuple[str, float, str]]) -> str:
    rows.sort(key=lambda one: -one[1])
    more = f"<p>The largest {BARS_MAX} of {len(rows):,}.</p>\n" if len(rows) > BARS_MAX else ""
    return f"<h2>{escape(title)}</h2>\n{more}{draw_bars(rows[:BARS_MAX])}" if rows else ""


CHART_WIDTH, CHART_HEIGHT, CHART_MARGIN = 800, 90, 14
BAR_ROW_HEIGHT, BAR_NAME_WIDTH = 20, 330


def draw_timeline(points: Mapping[int, tuple[int, int]], span: tuple[int, int, int], told: str) -> str:
    """A chart of requests per second; empty without requests."""
    from_ms, to_ms, stretch_ms = span
    first, last = from_ms // stretch_ms, max(to_ms // stretch_ms, from_ms // stretch_ms + 1)
    rates = [points.get(number, (0, 0))[0] * 1000 / stretch_ms for number in range(first, last + 1)]
    top = max(rates)
    if not top:
        return ""
    floor = CHART_HEIGHT - CHART_MARGIN
    step = CHART_WIDTH / (len(rates) - 1)
    dots = " ".join(f"{x * step:.1f},{floor - rate / top * (floor - CHART_MARGIN):.1f}" for x, rate in enumerate(rates))
    return (
        f'<svg viewBox="0 0 {CHART_WIDTH} {CHART_HEIGHT}" role="img" aria-label="{escape(told)}">'
        f'<polygon class="area" points="0,{floor} {dots} {CHART_WIDTH},{floor}"/>'
        f'<line class="axis" x1="0" y1="{floor}" x2="{CHART_WIDTH}" y2="{floor}"/>'
        f'<text x="0" y="{CHART_MARGIN - 3}">{top:,.1f} {escape(told)}</text>'
        f'<text x="0" y="{CHART_HEIGHT - 2}">{format_time(from_ms)}</text>'
        f'<text x="{CHART_WIDTH}" y="{CHART_HEIGHT - 2}" text-anchor="end">{format_time(to_ms)}</text></svg>\n'
    )


def draw_bars(rows: Sequence[tuple[str, float, str]]) -> str:
    top = max((value for _, value, _ in rows), default=0) or 1
    room = CHART_WIDTH - BAR_NAME_WIDTH - 90
    drawn = "".join(
        f'<text x="0" y="{y * BAR_ROW_HEIGHT + 14}">{escape(_short(name))}</text>'
        f'<rect class="bar" x="{BAR_NAME_WIDTH}" y="{y * BAR_ROW_HEIGHT + 4}" '
        f'width="{max(1.0, value / top * room):.1f}" height="13"/>'
        f'<text x="{BAR_NAME_WIDTH + max(1.0, value / top * room) + 6:.1f}" '
        f'y="{y * BAR_ROW_HEIGHT + 14}">{escape(told)}</text>'
        for y, (name, value, told) in enumerate(rows)
    )
    return f'<svg viewBox="0 0 {CHART_WIDTH} {len(rows) * BAR_ROW_HEIGHT + 4}" role="img">{drawn}</svg>\n'


def _short(name: str, most: int = 52) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"
