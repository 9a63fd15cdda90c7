"""What comes of findings: weights, waivers, exit codes, what is told, and what has changed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from testkit.errors import raises
from tests.advisor.seen_kit import NOW_MS, SOUND, broker, found, group, having, part, place, topic, with_group
from twinshore.advisor.core.advice_report import (
    Advice,
    AdviceScope,
    add_earlier_positions,
    as_values,
    build_advice,
    compare_advices,
    describe_advice,
    describe_difference,
    from_values,
)
from twinshore.advisor.core.model import (
    AdvisorPolicy,
    BlindSpot,
    ClusterSnapshot,
    EarlierPosition,
    Finding,
    ReliabilityKind,
    Severity,
    TopicSnapshot,
    build_profile,
    build_profiles,
    parse_policy,
)
from twinshore.advisor.core.simulator.search import STORIES
from twinshore.advisor.operations.advice_on_cluster import RULES
from twinshore.config.errors import ConfigError

WEAK = having(topic("orders", min_insync_replicas="1"), topic("clicks", unclean_leader_election_enable="true"))
WAIVER = '[[waivers]]\nrule = "min-insync-low"\nsubject = "topic ord.*"\nreason = "a test"\nuntil = {}\n'


def policy_of(text: str) -> AdvisorPolicy:
    return parse_policy(text, "policy.toml", RULES)


def advice_of(seen: ClusterSnapshot, policy: str = "") -> Advice:
    return build_advice(seen, policy_of(policy), RULES)


def test_each_rule_says_what_is_at_risk_and_has_a_name_of_its_own() -> None:
    assert len({one.name for one in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.says and rule.risk and rule.event, rule.name
        assert all(limit.says for limit in rule.limits), rule.name


def test_a_rule_leads_to_a_story_that_there_is() -> None:
    named = {one.story for one in RULES} - {""}
    assert named <= {story.name for story in STORIES}
    # Whatever loses a record of a topic or of a group is shown.
    shown = {one.name for one in RULES if one.story}
    assert {"single-copy", "min-insync-low", "unclean-election", "group-lost", "group-retention"} <= shown
    said = list(describe_advice(advice_of(WEAK)))
    assert "  to see it happen: twinshore simulate story unclean" in said
    values = as_values(advice_of(WEAK), AdvisorPolicy())
    assert [one["story"] for one in values["findings"]] == ["unclean", "min-insync-1"]
    assert from_values(json.loads(json.dumps(values)), "x").findings == advice_of(WEAK).findings


def test_the_gravest_comes_first() -> None:
    assert [one.rule for one in advice_of(WEAK).findings] == ["unclean-election", "min-insync-low"]


def test_what_the_policy_names_makes_the_answer_no() -> None:
    note = having(topic("orders", part(0, 1, 2, 3, leader=2)))
    blind = replace(SOUND, unseen=(BlindSpot("settings of broker 1", "no right"),))
    for seen, text, code in (
        (SOUND, "", 0),
        (WEAK, "", 1),
        (note, "", 0),
        (note, 'fail_at = "note"', 1),
        (WEAK, 'fail_at = "grave"', 1),
        (having(topic("orders", min_insync_replicas="1")), 'fail_at = "grave"', 0),
        (blind, "", 2),
        (replace(WEAK, unseen=blind.unseen), "", 1),
    ):
        policy = policy_of(text)
        advice = build_advice(seen, policy, RULES)
        assert policy.exit_code(advice.findings, advice.unseen) == code, text


def test_a_rule_is_left_out_and_a_limit_is_another() -> None:
    off = advice_of(WEAK, "[rules.unclean-election]\nenabled = false\n")
    assert [one.rule for one in off.findings] == ["min-insync-low"]
    assert [one.split()[-1] for one in off.remarks] == ["unclean-election"]
    two = having(topic("orders", part(0, 1, 2)))
    assert found(two, "few-copies") and not found(two, "few-copies", policy_of("[limits]\ncopies = 2\n"))


def test_a_waiver_passes_over_until_its_last_day() -> None:
    waived = advice_of(WEAK, WAIVER.format("2027-01-15"))  # The day of NOW_MS.
    assert [one.rule for one in waived.findings] == ["unclean-election"]
    assert [one.finding.subject for one in waived.waived] == ["topic orders"]
    over = advice_of(WEAK, WAIVER.format("2027-01-14"))
    assert len(over.findings) == 2
    assert "2027-01-14" in over.remarks[0]
    assert "meets nothing" in advice_of(SOUND, WAIVER.format("2027-01-15")).remarks[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fail_at = 'bad'", "fail_at: no such value 'bad'; known: grave, warning, note"),
        ("fail_att = 'note'", "fail_att: unknown; did you mean fail_at?"),
        ("[rules.few-copy]\ncopies = 2", r"\[rules.few-copy\] is no rule; did you mean few-copies?"),
        ("[limits]\ncopy = 2", r"\[limits\] copy: unknown; did you mean copies?"),
        ("[limits]\ncopies = 0", "copies: is 0, the least is 1"),
        ("[limits]\ncopies = 2.5", "copies: must be a whole number, not 2.5"),
        ("limits = 3", "limits: must be a section with keys"),
        ("[rules.few-copies]\ncopies = 2", r"\[rules.few-copies\] has no limits of all rules"),
        ("[rules.group-stuck]\nsecond = 2", "second: unknown; did you mean seconds?"),
        ("[rules.group-stuck]\nseconds = -1", "seconds: is -1, the least is 0"),
        ("[rules.group-stuck]\nseconds = nan", "seconds: must be a finite number, not nan"),
        ("[rules.group-retention]\nhours = inf", "hours: must be a finite number, not inf"),
        ("[limits]\ncopies = 1" + "0" * 400, "copies: is 1000"),
        ("[rules.few-copies]\nenabled = 1", "enabled: must be true or false, not 1"),
        ('[[waivers]]\nrule = "few-copies"\nsubject = ".*"\nuntil = 2027-01-01', "waiver 1: reason: is required"),
        (WAIVER.format('"soon"'), "waiver 1: until: must be a day such as"),
        (WAIVER.format("2027-01-01").replace("ord.*", "ord(*"), "subject: .* is not a regular expression"),
        (WAIVER.format("2027-01-01").replace("-low", "-lo"), "is no rule; did you mean min-insync-low?"),
        ("rules = 3", "rules: must be a section with keys"),
        ("waivers = 3", "waivers: must be a list of tables"),
        ("= 3", "policy policy.toml: "),
    ],
)
def test_a_policy_that_is_wrong_says_where(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        policy_of(text)


@pytest.mark.parametrize(
    ("one", "kind", "differs"),
    [
        (topic("orders"), ReliabilityKind.CP, ""),
        (topic("orders", min_insync_replicas="3"), ReliabilityKind.CP, ""),
        (topic("orders", min_insync_replicas="1"), ReliabilityKind.AP, ""),
        (topic("orders", unclean_leader_election_enable="true"), ReliabilityKind.NEITHER, "both CP and AP want false"),
        (topic("orders", part(0, 1), min_insync_replicas="1"), ReliabilityKind.NEITHER, "one replica"),
        (topic("orders", part(0, 1, 2, 3, 4, 5)), ReliabilityKind.NEITHER, "CP wants 3 of 5, AP wants 1"),
        (topic("orders", min_insync_replicas="4"), ReliabilityKind.NEITHER, "nothing with acks=all can be written"),
        (replace(topic("orders"), settings=None), ReliabilityKind.UNKNOWN, "could not be seen"),
    ],
)
def test_what_a_topic_promises(one: TopicSnapshot, kind: ReliabilityKind, differs: str) -> None:
    profile = build_profile(one)
    assert profile.kind is kind
    assert differs in "; ".join(profile.differs)
    assert bool(profile.differs) == (kind in (ReliabilityKind.NEITHER, ReliabilityKind.UNKNOWN))


def test_a_minimum_above_the_replicas_is_judged_by_what_brokers_take() -> None:
    two, one = topic("orders", part(0, 1, 2), min_insync_replicas="3"), topic("orders", part(0, 1))
    assert build_profile(two, capped=True).kind is ReliabilityKind.CP
    (differs,) = build_profile(one, capped=True).differs
    assert "min.insync.replicas asks for 2, Kafka takes 1" in differs
    (profile,) = build_profiles(having(two))
    assert profile.kind is ReliabilityKind.CP
    (profile,) = build_profiles(replace(having(two), brokers=(broker(1), broker(2, supports=14))))
    assert profile.kind is ReliabilityKind.NEITHER


def test_an_advice_is_read_again_as_it_was_written() -> None:
    policy = policy_of(WAIVER.format("2027-01-15"))
    advice = build_advice(replace(WEAK, unseen=(BlindSpot("a", "b", "c"),)), policy, RULES)
    values = json.loads(json.dumps(as_values(advice, policy)))
    assert replace(from_values(values, "before.json"), remarks=advice.remarks) == advice
    assert (values["exit_code"], values["profiles"][0]["kind"]) == (1, "AP")
    with raises(ConfigError, "advisor.other-version"):
        from_values({**values, "form": 0}, "before.json")
    with raises(ConfigError, "advisor.not-advice", path="before.json"):
        from_values([], "before.json")


def test_what_has_changed_since() -> None:
    before, now = advice_of(WEAK), advice_of(having(topic("orders", min_insync_replicas="3")))
    changed = compare_advices(replace(before, at_ms=NOW_MS - 7_200_000), now)
    assert [one.rule for one in changed.new] == ["min-insync-high"]
    assert [one.rule for one in changed.gone] == ["unclean-election", "min-insync-low"]
    assert next(iter(describe_difference(changed, NOW_MS))) == "since 2.0 h ago: 1 new, 2 gone, 0 as before"
    assert compare_advices(before, before).stays == 2
    waived = advice_of(WEAK, WAIVER.format("2027-01-15"))
    assert compare_advices(waived, before).new == () and compare_advices(before, waived).gone == ()


def test_what_was_not_looked_at_this_time_is_not_called_gone() -> None:
    """With --topic, or a policy that leaves a rule out, 18 findings that still stood were told to be gone."""
    before = advice_of(WEAK)
    orders = AdviceScope(admits=lambda topic: topic == "orders")
    assert [one.subject for one in before.findings] == ["topic clicks", "topic orders"]
    now = compare_advices(before, advice_of(SOUND), orders)
    assert ([one.subject for one in now.gone], now.not_checked) == (["topic orders"], 1)
    now = compare_advices(before, advice_of(SOUND), AdviceScope(frozenset({"unclean-election"})))
    assert ([one.rule for one in now.gone], now.not_checked) == (["min-insync-low"], 1)
    of_kafka = Finding("offsets-topic", Severity.CRITICAL, "topic __consumer_offsets", "", "", "", "")
    of_group = Finding("group-unplaced", Severity.NOTE, "group billing", "", "", "", "")
    on_topic = Finding("group-lost", Severity.NOTE, "group billing on orders", "", "", "", "")
    assert [orders.at(one) for one in (of_kafka, of_group, on_topic)] == [True, False, True]
    assert all(AdviceScope().at(one) for one in (of_kafka, of_group, on_topic))


def test_an_earlier_look_is_laid_beside_each_place() -> None:
    earlier = advice_of(with_group(group(place(5, 80)))).places
    seen = add_earlier_positions(with_group(group(place(10, 100), place(1, 2, number=1))), earlier, NOW_MS - 4_000)
    assert [one.before for one in seen.groups[0].places] == [EarlierPosition(5, 80, 4.0), None]
    assert add_earlier_positions(SOUND, earlier, NOW_MS) == SOUND


def test_a_group_whose_looks_say_nothing_is_not_passed_over() -> None:
    """Whoever looks twice within five seconds was told nothing of a group that hangs, and that all is well."""
    for apart_s, live, lag, unseen in (
        (8.0, True, 9, 0),
        (7.9, True, 9, 1),
        (None, True, 9, 1),
        (5.0, False, 9, 0),
        (5.0, True, 0, 0),
    ):
        ours = place(10 + 9 - lag, 19)
        if apart_s is not None:
            ours = replace(ours, before=EarlierPosition(10, 19, apart_s))
        seen = with_group(group(ours, live=live))
        told = build_advice(seen, AdvisorPolicy(off=frozenset({"group-abandoned"})), RULES)
        assert len(told.unseen) == unseen, (apart_s, live, lag)
        assert build_advice(seen, AdvisorPolicy(off=frozenset({"group-stuck"})), RULES).unseen == ()
    assert told.unseen == ()


def test_what_is_told() -> None:
    seen = replace(WEAK, unseen=(BlindSpot("settings of broker 1", "no right", "grant it"),))
    said = list(describe_advice(advice_of(seen)))
    text = "\n".join(said)
    for line in (
        "east: 2 findings: 1 grave, 1 warning; 1 thing could not be seen",
        "GRAVE unclean-election: a replica that lacks records may become leader\n  at risk: records",
        "could not see settings of broker 1: no right (try: grant it)",
        "unknown: acks of producers: brokers do not tell them",
    ):
        assert line in text
    assert "  topic orders: min.insync.replicas=1 of 3 replicas" in text
    assert "  AP: orders\n  neither: clicks\n    clicks: unclean.leader.election.enable is true" in text
    assert next(iter(describe_advice(advice_of(SOUND)))) == "east: nothing was found"


def test_many_that_are_alike_are_not_all_shown() -> None:
    many = having(*(topic(f"t{number}", min_insync_replicas="1") for number in range(12)))
    said = list(describe_advice(advice_of(many)))
    assert "  and 2 more: --all shows them, --json has them" in said
    assert sum("0 of 3" in line or "=1 of 3" in line for line in said) == 10
    assert sum("=1 of 3" in line for line in describe_advice(advice_of(many), everything=True)) == 12


def test_weights_are_ordered() -> None:
    assert AdvisorPolicy(fail_at=Severity.NOTE).fails(Severity.CRITICAL) and not AdvisorPolicy(
        fail_at=Severity.CRITICAL
    ).fails(Severity.WARNING)
