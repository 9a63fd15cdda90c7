"""What clients did is summed up in parts and judged: with Spark or without, in sentences, JSON and on a page."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from testkit.errors import raises
from twinshore.advisor.collect import BlindSpotCollector
from twinshore.advisor.core.client_audit import (
    build_client_audit,
    draw_bars,
    draw_timeline,
    find_usage,
    judge_client,
)
from twinshore.advisor.core.client_rules import (
    CLIENT_RULES,
    AuditedClient,
    ClientUsage,
    UsageByFlow,
    find_weak_acks_topics,
    sum_usages,
)
from twinshore.advisor.core.model import AdvisorPolicy, parse_policy
from twinshore.advisor.operations.client_audits import (
    READ_SPAN_MS,
    ClientAuditRequest,
    ClientAuditResult,
    TrafficSlice,
    audit_as_values,
    audit_clients,
    audit_locally,
    describe_audit,
    min_insync,
    read_usage,
    render_audit,
)
from twinshore.config.errors import ConfigError
from twinshore.config.model import Secret
from twinshore.config.settings import Settings, parse_settings
from twinshore.state.core.proxy_values import TrafficCounter, TrafficKey, TrafficKind, TrafficRow
from twinshore.state.store import open_store

NOW_MS = 1_790_000_000_000
WINDOW_MS = 10_000
EAST = TrafficKey("single", "orders", "east", TrafficKind.PRODUCE)
SINGLES = TrafficCounter(requests=600, bytes=60_000, records=600, batches=600, single_record_batches=600)
GOOD = TrafficCounter(requests=100, bytes=1_000_000, records=10_000, batches=100)


def window(number: int, key: TrafficKey, flow: TrafficCounter, instance: str = "p1") -> TrafficRow:
    until_ms = NOW_MS - number * WINDOW_MS
    return TrafficRow(instance, f"proxy {instance}", until_ms - WINDOW_MS, until_ms, key, flow)


ROWS = [
    *(window(number, EAST, SINGLES) for number in range(30)),
    *(window(number, EAST._replace(client="good"), GOOD) for number in range(30)),
    *(
        window(number, TrafficKey("single", "", "", TrafficKind.CLIENT), TrafficCounter(requests=700))
        for number in range(30)
    ),
]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    text = f'[store]\nurl = "sqlite:///{tmp_path}/store.db"\n[clusters.east]\nbootstrap = ["127.0.0.1:1"]\n'
    return parse_settings(text, name="settings", env={})


@pytest.fixture
def filled(settings: Settings) -> Settings:
    """With a store that has windows of traffic."""
    with open_store(settings.store.url) as store:
        for number in range(30):
            of_window = [row for row in ROWS if row.until_ms == NOW_MS - number * WINDOW_MS]
            store.traffic.tell(of_window)
    return settings


def asked(look: ClientAuditRequest, settings: Settings) -> ClientAuditResult:
    said: list[str] = []
    found = audit_clients(look, settings, clock=lambda: NOW_MS, stop=threading.Event(), tell=said.append)
    assert found is not None
    assert bool(said) is not look.here
    return found


def test_parts_summed_up_in_any_order_are_the_whole() -> None:
    whole = sum_usages(ROWS, 60_000)
    halves = [sum_usages(ROWS[::2], 60_000), sum_usages(ROWS[1::2], 60_000)]
    for key, use in halves[0].items():
        halves[1][key] = halves[1][key].add(use) if key in halves[1] else use
    assert halves[1] == whole
    use = whole[EAST]
    assert (use.counter.requests, use.lasted_s, use.per_s(use.counter.requests)) == (18_000, 300, 60)
    assert sum(requests for requests, _ in use.points.values()) == 18_000


def test_proxies_count_side_by_side() -> None:
    both = [window(0, EAST, SINGLES, "p1"), window(0, EAST, SINGLES, "p2")]
    use = sum_usages(both, 60_000)[EAST]
    assert use.per_s(use.counter.requests) == 120


def test_topics_of_a_client_are_used_at_the_same_time() -> None:
    uses = {
        EAST: ClientUsage(SINGLES.copy(), {"p1": 10_000}),
        EAST._replace(topic="bills"): ClientUsage(GOOD.copy(), {"p1": 10_000}),
    }
    whole = AuditedClient("single", uses).whole(TrafficKind.PRODUCE)
    assert (whole.counter.requests, whole.lasted_s) == (700, 10)
    assert uses[EAST].counter.requests == 600, "nothing is changed by looking"


def test_a_task_reads_its_slices_of_the_store(filled: Settings) -> None:
    whole = TrafficSlice(filled.store.url, Secret(), NOW_MS - 2 * READ_SPAN_MS, NOW_MS, 60_000)
    parts: UsageByFlow = {}
    for one in whole.parted(7):
        for key, use in read_usage([one]):
            parts[key] = parts[key].add(use) if key in parts else use
    assert parts == dict(read_usage([whole])) == sum_usages(ROWS, 60_000)
    assert audit_locally(replace(whole, to_ms=whole.from_ms), AdvisorPolicy(), lambda _: {}) == ({}, [])


def test_who_is_judged_and_how_it_is_told(filled: Settings) -> None:
    answer = asked(ClientAuditRequest(here=True), filled)
    assert (answer.audit.clients, answer.exit_code) == (2, 1)
    (finding,) = answer.audit.findings
    assert (finding.rule, finding.subject) == ("single-records", "client single, topic orders on east")
    lines = describe_audit(answer, everything=False)
    assert re.search(r"^2 clients, .*: 1 finding: 1 warning$", lines[0])
    assert "      linger.ms=20" in lines
    assert any("60 requests a second" in line and "18,000 records in 18,000 batches" in line for line in lines)
    values = json.loads(json.dumps(audit_as_values(answer)))
    assert values["findings"][0]["figures"]["requests_s"] == 60
    assert values["findings"][0]["figures"]["requests_s_mended"] == 50


def test_a_policy_waives_and_has_limits(filled: Settings, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(
        '[[waivers]]\nrule = "single-records"\nsubject = "client single.*"\nreason = "it is old"\nuntil = 2030-01-01\n'
    )
    answer = asked(ClientAuditRequest(here=True, policy=policy), filled)
    assert (answer.exit_code, answer.audit.findings) == (0, ())
    assert "waived until 2030-01-01: single-records" in "\n".join(describe_audit(answer, everything=True))
    assert audit_as_values(answer)["waived"][0]["waiver"]["reason"] == "it is old"
    with raises(ConfigError, "advisor.invalid-policy"):
        parse_policy("[rules.tiny-batch]\n", "policy", CLIENT_RULES)


def test_the_page_needs_nothing_else_and_names_cannot_break_it() -> None:
    evil = EAST._replace(client="<script>alert(1)</script>")
    rows = [window(number, evil, SINGLES) for number in range(30)]
    uses = sum_usages(rows, 60_000)
    found = judge_client(AuditedClient(evil.client, uses), AdvisorPolicy())
    audit = build_client_audit(found, AdvisorPolicy(), uses, (NOW_MS - 600_000, NOW_MS, 60_000), ())
    text = render_audit(ClientAuditResult(audit, AdvisorPolicy()))
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert not re.search(r"(src|href)=", text)
    for svg in re.findall(r"<svg.*?</svg>", text):
        ElementTree.fromstring(svg)
    assert text.count("<svg") == 2


def test_a_drawing_shows_the_course_and_the_largest() -> None:
    drawn = draw_timeline({10: (60, 0), 12: (120, 0)}, (10_000, 14_000, 1_000), "requests a second")
    assert "120.0 requests a second" in drawn
    assert drawn.count(",") >= 7
    assert draw_timeline({}, (10_000, 14_000, 1_000), "requests a second") == ""
    assert draw_bars([("a", 2.0, "2 bytes"), ("b" * 80, 1.0, "1 byte")]).count("<rect") == 2
    assert draw_timeline({0: (1, 0)}, (0, 0, 1_000), "requests a second") != ""


def test_a_finding_about_no_topic_is_drawn_by_all_that_the_client_asks() -> None:
    uses = sum_usages(ROWS, 60_000)
    (finding,) = judge_client(
        AuditedClient("single", {key: use for key, use in uses.items() if key.client == "single"}), AdvisorPolicy()
    )
    assert find_usage(finding, uses).counter.requests == 18_000
    assert find_usage(replace(finding, topic=""), uses).counter.requests == 21_000


def test_what_a_topic_asks_for_is_asked_where_somebody_writes_with_less(settings: Settings) -> None:
    uses: UsageByFlow = {
        EAST: ClientUsage(TrafficCounter(requests=5, acks_leader=1)),
        EAST._replace(topic="bills"): ClientUsage(TrafficCounter(requests=5)),
        EAST._replace(cluster="gone"): ClientUsage(TrafficCounter(requests=5, acks_none=1)),
    }
    assert find_weak_acks_topics(uses) == [("east", "orders"), ("gone", "orders")]
    eyes = BlindSpotCollector()
    assert min_insync(uses, settings, eyes) == {}
    assert [one.what.split()[0] for one in eyes.blind_spots] == ["min.insync.replicas"]


def test_without_a_store_nothing_is_judged(settings: Settings) -> None:
    with raises(ConfigError, "advisor.no-store"):
        asked(ClientAuditRequest(here=True), settings)


def test_spark_finds_the_same(filled: Settings) -> None:
    on_spark, here = asked(ClientAuditRequest(), filled), asked(ClientAuditRequest(here=True), filled)
    assert on_spark.audit.findings == here.audit.findings != ()
    assert on_spark.audit.usages == here.audit.usages
