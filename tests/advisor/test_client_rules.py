"""Each rule about a finding finds it, with its figures, and finds nothing just below its limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from twinshore.advisor.core.client_audit import judge_client
from twinshore.advisor.core.client_rules import CLIENT_RULES, AuditedClient, ClientFinding, ClientUsage
from twinshore.advisor.core.model import AdvisorPolicy
from twinshore.state.core.proxy_values import TrafficCounter, TrafficKey, TrafficKind

LASTED_S = 100
# What nobody could say anything against: large compressed batches of an idempotent producer, patient reading.
GOOD_WRITER = TrafficCounter(requests=1_000, bytes=50_000_000, records=100_000, batches=1_000)
GOOD_READER = TrafficCounter(requests=300, empty=100, bytes=10_000_000, wait_ms=150_000, min_bytes=300)
GOOD_MEMBER = TrafficCounter(requests=100, records=10_000)
GOOD_CLIENT = TrafficCounter(requests=5_000, connections=1, connected_max=1, software="librdkafka 2.4.0")
GOOD_LOOKS = TrafficCounter(requests=20)


def key(kind: TrafficKind, topic: str = "orders", cluster: str = "east") -> TrafficKey:
    return TrafficKey("app", topic, cluster, kind)


WRITES, READS, COMMITS = key(TrafficKind.PRODUCE), key(TrafficKind.FETCH), key(TrafficKind.COMMIT)
IS, LOOKS = key(TrafficKind.CLIENT, "", ""), key(TrafficKind.METADATA, "", "")
UNKNOWN = key(TrafficKind.METADATA, "ordres", "")
GOOD = {WRITES: GOOD_WRITER, READS: GOOD_READER, COMMITS: GOOD_MEMBER, IS: GOOD_CLIENT, LOOKS: GOOD_LOOKS}


def findings(
    where: TrafficKey, min_insync: int = 1, lasted_s: float = LASTED_S, at_once: int = 1, **changed: Any
) -> list[ClientFinding]:
    """`at_once`: connections under the client's id."""
    is_so = replace(GOOD_CLIENT, connections=at_once, connected_max=at_once)
    flows = {**GOOD, IS: is_so}
    flows[where] = replace(flows.get(where, TrafficCounter()), **changed)
    uses = {one: ClientUsage(flow, {"p1": int(lasted_s * 1_000)}) for one, flow in flows.items()}
    return judge_client(AuditedClient("app", uses, {("east", "orders"): min_insync}), AdvisorPolicy())


def rules(where: TrafficKey, **changed: Any) -> list[str]:
    return [one.rule for one in findings(where, **changed)]


def test_a_client_that_does_all_well_is_accused_of_nothing() -> None:
    assert rules(WRITES) == []
    assert rules(WRITES, min_insync=2) == []
    assert rules(WRITES, lasted_s=100_000) == []


PLAIN = 50_000 * LASTED_S
CASES: list[tuple[str, TrafficKey, dict[str, Any], dict[str, Any]]] = [
    (
        "no-compression",
        WRITES,
        {"bytes": 2 * PLAIN - 2, "uncompressed_bytes": PLAIN + 1, "uncompressed_batches": 900},
        {"bytes": 2 * PLAIN - 2, "uncompressed_bytes": PLAIN, "uncompressed_batches": 900},
    ),
    (
        "no-compression",
        WRITES,
        {
            "bytes": 2 * PLAIN,
            "uncompressed_bytes": 2 * PLAIN,
            "lz4_sample_bytes": 100,
            "lz4_sample_compressed_bytes": 79,
        },
        {
            "bytes": 2 * PLAIN,
            "uncompressed_bytes": 2 * PLAIN,
            "lz4_sample_bytes": 100,
            "lz4_sample_compressed_bytes": 80,
        },
    ),
    (
        "no-compression",
        WRITES,
        {"bytes": 3 * PLAIN, "uncompressed_bytes": 2 * PLAIN},
        {"bytes": 4 * PLAIN, "uncompressed_bytes": 2 * PLAIN},
    ),
    (
        "single-records",
        WRITES,
        {"batches": 5_001, "single_record_batches": 4_900, "records": 5_101},
        {"batches": 5_000, "single_record_batches": 4_900, "records": 5_100},
    ),
    (
        "single-records",
        WRITES,
        {"batches": 6_000, "single_record_batches": 5_401, "records": 6_600},
        {"batches": 6_000, "single_record_batches": 5_400, "records": 6_600},
    ),
    (
        "tiny-batches",
        WRITES,
        {"requests": 10_001, "batches": 10_001, "bytes": 5_000_000, "records": 40_000},
        {"requests": 10_000, "batches": 10_000, "bytes": 5_000_000, "records": 40_000},
    ),
    (
        "tiny-batches",
        WRITES,
        {"requests": 12_000, "batches": 12_000, "bytes": 11_999_999, "records": 40_000},
        {"requests": 12_000, "batches": 12_000, "bytes": 12_000_000, "records": 40_000},
    ),
    ("weak-acks", WRITES, {"acks_leader": 1, "min_insync": 2}, {"acks_leader": 1, "min_insync": 1}),
    ("weak-acks", WRITES, {"acks_none": 1, "min_insync": 2}, {"acks_none": 0, "min_insync": 2}),
    ("acks-none", WRITES, {"acks_none": 11}, {"acks_none": 10}),
    ("no-idempotence", WRITES, {"non_idempotent_batches": 501}, {"non_idempotent_batches": 500}),
    (
        "no-idempotence",
        WRITES,
        {"non_idempotent_batches": 101, "batches": 110, "acks_leader": 499},
        {"non_idempotent_batches": 100, "batches": 110},
    ),
    (
        "no-idempotence",
        WRITES,
        {"non_idempotent_batches": 1_000},
        {"non_idempotent_batches": 1_000, "acks_leader": 500},
    ),
    (
        "busy-polling",
        READS,
        {"requests": 1_500, "empty": 1_001, "wait_ms": 15_000},
        {"requests": 1_500, "empty": 1_000, "wait_ms": 15_000},
    ),
    (
        "busy-polling",
        READS,
        {"requests": 4_000, "empty": 2_001, "wait_ms": 399_999},
        {"requests": 4_000, "empty": 2_001, "wait_ms": 400_000},
    ),
    (
        "busy-polling",
        READS,
        {"requests": 4_000, "empty": 2_001, "wait_ms": 4_000},
        {"requests": 4_000, "empty": 2_000, "wait_ms": 4_000},
    ),
    (
        "small-fetches",
        READS,
        {"requests": 10_101, "empty": 100, "bytes": 50_000_000},
        {"requests": 10_100, "empty": 100, "bytes": 50_000_000},
    ),
    (
        "small-fetches",
        READS,
        {"requests": 20_100, "empty": 100, "bytes": 199_999_999},
        {"requests": 20_100, "empty": 100, "bytes": 200_000_000},
    ),
    ("commit-storm", COMMITS, {"requests": 501, "records": 501}, {"requests": 500, "records": 500}),
    ("commit-storm", COMMITS, {"requests": 1_000, "records": 1_999}, {"requests": 1_000, "records": 2_000}),
    ("commit-storm", COMMITS, {"requests": 1_000, "records": 500}, {"requests": 1_000, "records": 499}),
    ("commit-storm", COMMITS, {"requests": 601, "records": 601, "at_once": 6}, {"requests": 600, "at_once": 6}),
    ("many-connections", IS, {"connected_max": 101}, {"connected_max": 100}),
    ("reconnects", IS, {"connections": 51, "requests": 2_000}, {"connections": 50, "requests": 2_000}),
    ("reconnects", IS, {"connections": 100, "requests": 4_999}, {"connections": 100, "requests": 5_000}),
    (
        "reconnects",
        IS,
        {"connections": 100, "requests": 99, "connected_max": 59},
        {"connections": 100, "requests": 99, "connected_max": 60},
    ),
    ("metadata-storm", LOOKS, {"requests": 201}, {"requests": 200}),
    ("metadata-storm", LOOKS, {"requests": 501, "at_once": 50}, {"requests": 500, "at_once": 50}),
    ("unknown-topics", UNKNOWN, {"errors": 21, "requests": 21}, {"errors": 20, "requests": 20}),
    ("unknown-topics", UNKNOWN, {"errors": 41, "lasted_s": 200}, {"errors": 40, "lasted_s": 200}),
    ("old-client", IS, {"software": "apache-kafka-java 2.8.2"}, {"software": "apache-kafka-java 3.0.0"}),
    ("old-client", IS, {"software": "librdkafka 1.9.2-rc1"}, {"software": "librdkafka 2.0.0"}),
    ("old-client", IS, {"software": "apache-kafka-java 0.11"}, {"software": "somebody's 0.1"}),
]


@pytest.mark.parametrize(("rule", "where", "bad", "just_so"), CASES)
def test_a_rule_finds_its_finding_and_nothing_just_below(
    rule: str, where: TrafficKey, bad: dict[str, Any], just_so: dict[str, Any]
) -> None:
    assert rule in rules(where, **bad)
    assert rule not in rules(where, **just_so)


@pytest.mark.parametrize("rule", CLIENT_RULES, ids=lambda rule: str(rule.name))
def test_each_rule_is_tried_and_says_what_it_costs_and_what_mends_it(rule: Any) -> None:
    case = next(one for one in CASES if one[0] == rule.name)
    (found,) = [one for one in findings(case[1], **case[2]) if one.rule == rule.name]
    assert found.says and found.costs and found.evidence and found.cost and found.settings and found.effect
    assert found.figures
    assert all(limit.says for limit in rule.limits)
    assert found.subject.startswith("client app")


@pytest.mark.parametrize("rule", [one for one in CLIENT_RULES if any(limit.name == "seconds" for limit in one.limits)])
def test_what_lasted_for_a_moment_is_judged_by_nobody(rule: Any) -> None:
    case = next(one for one in CASES if one[0] == rule.name)
    changed = {name: value / 5.01 if isinstance(value, int) else value for name, value in case[2].items()}
    assert rule.name not in rules(case[1], **{**changed, "lasted_s": 19.9})


def test_who_sends_single_records_is_not_told_of_tiny_batches_too() -> None:
    found = rules(WRITES, batches=10_000, single_record_batches=10_000, records=10_000, bytes=1_000_000)
    assert found == ["single-records"]


def test_whoever_stands_for_others_is_not_judged() -> None:
    use = ClientUsage(replace(GOOD_WRITER, acks_none=1_000), {"p1": 100_000})
    assert judge_client(AuditedClient("*", {WRITES._replace(client="*"): use}), AdvisorPolicy()) == []


def test_a_policy_leaves_rules_out_and_sets_other_limits() -> None:
    uses = {LOOKS: ClientUsage(TrafficCounter(requests=300), {"p1": 100_000})}
    assert [one.rule for one in judge_client(AuditedClient("app", uses), AdvisorPolicy())] == ["metadata-storm"]
    assert judge_client(AuditedClient("app", uses), AdvisorPolicy(off=frozenset({"metadata-storm"}))) == []
    assert judge_client(AuditedClient("app", uses), AdvisorPolicy(limits={("metadata-storm", "requests_s"): 3.0})) == []


# By default all producers and all members of a group have one name: what they do together is nobody's finding.
TOGETHER: list[tuple[str, TrafficKey, dict[str, Any]]] = [
    ("30 quiet members that commit each five seconds", COMMITS, {"requests": 600, "records": 0, "at_once": 90}),
    ("30 members that get a record now and then", COMMITS, {"requests": 600, "records": 600, "at_once": 90}),
    (
        "60 producers with a record a second",
        WRITES,
        {
            "requests": 6_000,
            "batches": 6_000,
            "single_record_batches": 6_000,
            "records": 6_000,
            "bytes": 600_000,
            "at_once": 60,
        },
    ),
    (
        "60 producers with two small records a second",
        WRITES,
        {"requests": 12_000, "batches": 12_000, "records": 24_000, "bytes": 2_400_000, "at_once": 60},
    ),
    ("100 readers of a record a second", READS, {"requests": 11_000, "empty": 0, "bytes": 110_000, "at_once": 100}),
    ("601 clients that ask each five minutes", LOOKS, {"requests": 201, "at_once": 601}),
    ("300 processes whose idle connections end", IS, {"connections": 56, "connected_max": 300, "requests": 112}),
]


@pytest.mark.parametrize(("where", "changed"), [one[1:] for one in TOGETHER], ids=[one[0] for one in TOGETHER])
def test_what_many_do_under_one_name_is_no_finding_of_one(where: TrafficKey, changed: dict[str, Any]) -> None:
    assert [one for one in rules(where, **changed) if one != "many-connections"] == []


def test_connections_count_at_all_proxies_side_by_side() -> None:
    use = ClientUsage(TrafficCounter(connected_max=20), {"p1": 100_000, "p2": 100_000, "p3": 50_000})
    client = AuditedClient("app", {IS: use})
    assert client.connected == 50
    assert client.each_s(ClientUsage(TrafficCounter(), {"p1": 100_000}), 500) == 0.1
    assert AuditedClient("app", {}).connected == 1


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("producer-1", False),
        ("consumer-billing-1", False),
        ("producer-of-orders-7", False),
        ("rdkafka", False),
        ("", False),
        ("billing", True),
        ("billing-7", True),
    ],
)
def test_a_name_that_nobody_gave_is_that_of_many_processes(name: str, told: bool) -> None:
    uses = {IS._replace(client=name): ClientUsage(TrafficCounter(connected_max=150, requests=15_000), {"p1": 100_000})}
    found = [one.rule for one in judge_client(AuditedClient(name, uses), AdvisorPolicy())]
    assert found == (["many-connections"] if told else [])
