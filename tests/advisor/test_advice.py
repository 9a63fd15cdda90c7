"""What comes of findings: weights, waivers, exit codes, what is told, and what has changed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.advisor.seen_kit import NOW_MS, SOUND, found, group, having, part, place, topic, with_group
from twinshore.advisor.advice import Advice, advise, as_values, difference, from_values, with_before
from twinshore.advisor.policy import Policy, parse_policy
from twinshore.advisor.profiles import Kind, profile_of
from twinshore.advisor.rule import Weight
from twinshore.advisor.rules import RULES
from twinshore.advisor.seen import Before, Seen, Topic, Unseen
from twinshore.advisor.telling import difference_in_words, sentences_of
from twinshore.fleet import ConfigError

WEAK = having(topic("orders", min_insync_replicas="1"), topic("clicks", unclean_leader_election_enable="true"))
WAIVER = '[[waivers]]\nrule = "min-insync-low"\nsubject = "topic ord.*"\nreason = "a test"\nuntil = {}\n'


def policy_of(text: str) -> Policy:
    return parse_policy(text, "policy.toml", RULES)


def advice_of(seen: Seen, policy: str = "") -> Advice:
    return advise(seen, policy_of(policy), RULES)


def test_each_rule_says_what_is_at_risk_and_has_a_name_of_its_own() -> None:
    assert len({one.name for one in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.says and rule.risk and rule.event, rule.name
        assert all(limit.says for limit in rule.limits), rule.name


def test_the_gravest_comes_first() -> None:
    assert [one.rule for one in advice_of(WEAK).findings] == ["unclean-election", "min-insync-low"]


def test_what_the_policy_names_makes_the_answer_no() -> None:
    note = having(topic("orders", part(0, 1, 2, 3, leader=2)))
    blind = replace(SOUND, unseen=(Unseen("settings of broker 1", "no right"),))
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
        assert advise(seen, policy, RULES).exit_code(policy) == code, text


def test_a_rule_is_left_out_and_a_limit_is_another() -> None:
    off = advice_of(WEAK, "[rules.unclean-election]\nenabled = false\n")
    assert [one.rule for one in off.findings] == ["min-insync-low"]
    assert off.remarks == ("the policy leaves out unclean-election",)
    two = having(topic("orders", part(0, 1, 2)))
    assert found(two, "few-copies") and not found(two, "few-copies", policy_of("[rules.few-copies]\ncopies = 2\n"))


def test_a_waiver_passes_over_until_its_last_day() -> None:
    waived = advice_of(WEAK, WAIVER.format("2027-01-15"))  # The day of NOW_MS.
    assert [one.rule for one in waived.findings] == ["unclean-election"]
    assert [one.finding.subject for one in waived.waived] == ["topic orders"]
    over = advice_of(WEAK, WAIVER.format("2027-01-14"))
    assert len(over.findings) == 2
    assert "ended on 2027-01-14: what it passed over counts again" in over.remarks[0]
    assert "meets nothing" in advice_of(SOUND, WAIVER.format("2027-01-15")).remarks[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fail_at = 'bad'", "fail_at is 'bad'; it is one of grave, warning, note"),
        ("fail_att = 'note'", "'fail_att' is no key of a policy; did you mean fail_at?"),
        ("[rules.few-copy]\ncopies = 2", r"\[rules.few-copy\] is no rule; did you mean few-copies?"),
        ("[rules.few-copies]\ncopy = 2", "has no 'copy'; did you mean copies?"),
        ("[rules.few-copies]\ncopies = -1", "copies must be a number from 0 on, not -1"),
        ("[rules.few-copies]\nenabled = 1", "enabled must be true or false, not 1"),
        ('[[waivers]]\nrule = "few-copies"\nsubject = ".*"\nuntil = 2027-01-01', "waiver 1 needs 'reason', a text"),
        (WAIVER.format('"soon"'), "waiver 1 needs 'until', a day such as 2027-01-31"),
        (WAIVER.format("2027-01-01").replace("ord.*", "ord(*"), "subject is no expression"),
        (WAIVER.format("2027-01-01").replace("-low", "-lo"), "which is no rule; did you mean min-insync-low?"),
        ("rules = 3", "rules has a section for each rule"),
        ("waivers = 3", "waivers is a list of tables"),
        ("= 3", "policy policy.toml: "),
    ],
)
def test_a_policy_that_is_wrong_says_where(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        policy_of(text)


@pytest.mark.parametrize(
    ("one", "kind", "differs"),
    [
        (topic("orders"), Kind.CP, ""),
        (topic("orders", min_insync_replicas="3"), Kind.CP, ""),
        (topic("orders", min_insync_replicas="1"), Kind.AP, ""),
        (topic("orders", unclean_leader_election_enable="true"), Kind.NEITHER, "both CP and AP want false"),
        (topic("orders", part(0, 1), min_insync_replicas="1"), Kind.NEITHER, "one replica"),
        (topic("orders", part(0, 1, 2, 3, 4, 5)), Kind.NEITHER, "CP wants 3 of 5, AP wants 1"),
        (topic("orders", min_insync_replicas="4"), Kind.NEITHER, "nothing with acks=all can be written"),
        (replace(topic("orders"), settings=None), Kind.UNKNOWN, "could not be seen"),
    ],
)
def test_what_a_topic_promises(one: Topic, kind: Kind, differs: str) -> None:
    profile = profile_of(one)
    assert profile.kind is kind
    assert differs in "; ".join(profile.differs)
    assert bool(profile.differs) == (kind in (Kind.NEITHER, Kind.UNKNOWN))


def test_an_advice_is_read_again_as_it_was_written() -> None:
    policy = policy_of(WAIVER.format("2027-01-15"))
    advice = advise(replace(WEAK, unseen=(Unseen("a", "b", "c"),)), policy, RULES)
    values = json.loads(json.dumps(as_values(advice, policy)))
    assert replace(from_values(values, "before.json"), remarks=advice.remarks) == advice
    assert (values["exit_code"], values["profiles"][0]["kind"]) == (1, "AP")
    with pytest.raises(ConfigError, match="is of another version"):
        from_values({**values, "form": 0}, "before.json")
    with pytest.raises(ConfigError, match=r"before\.json is no advice"):
        from_values([], "before.json")


def test_what_has_changed_since() -> None:
    before, now = advice_of(WEAK), advice_of(having(topic("orders", min_insync_replicas="3")))
    changed = difference(replace(before, at_ms=NOW_MS - 7_200_000), now)
    assert [one.rule for one in changed.new] == ["min-insync-high"]
    assert [one.rule for one in changed.gone] == ["unclean-election", "min-insync-low"]
    assert next(iter(difference_in_words(changed, NOW_MS))) == "since 2.0 h ago: 1 new, 2 gone, 0 as before"
    assert difference(before, before).stays == 2
    waived = advice_of(WEAK, WAIVER.format("2027-01-15"))
    assert difference(waived, before).new == () and difference(before, waived).gone == ()


def test_an_earlier_look_is_laid_beside_each_place() -> None:
    earlier = advice_of(with_group(group(place(5, 80)))).places
    seen = with_before(with_group(group(place(10, 100), place(1, 2, number=1))), earlier, NOW_MS - 4_000)
    assert [one.before for one in seen.groups[0].places] == [Before(5, 80, 4.0), None]
    assert with_before(SOUND, earlier, NOW_MS) == SOUND


def test_what_is_told() -> None:
    seen = replace(WEAK, unseen=(Unseen("settings of broker 1", "no right", "grant it"),))
    said = list(sentences_of(advice_of(seen)))
    assert said[0] == "east: 2 findings: 1 grave, 1 warning; 1 thing could not be seen"
    text = "\n".join(said)
    assert "GRAVE unclean-election: a replica that lacks records may become leader\n  at risk: records" in text
    assert "  topic orders: min.insync.replicas=1 of 3 replicas" in text
    assert "could not see settings of broker 1: no right (try: grant it)" in text
    assert "  AP: orders\n  neither: clicks\n    clicks: unclean.leader.election.enable is true" in text
    assert "unknown: acks of producers: brokers do not tell them" in text
    assert next(iter(sentences_of(advice_of(SOUND)))) == "east: nothing was found"


def test_many_that_are_alike_are_not_all_shown() -> None:
    many = having(*(topic(f"t{number}", min_insync_replicas="1") for number in range(12)))
    said = list(sentences_of(advice_of(many)))
    assert "  and 2 more: --all shows them, --json has them" in said
    assert sum("0 of 3" in line or "=1 of 3" in line for line in said) == 10
    assert sum("=1 of 3" in line for line in sentences_of(advice_of(many), everything=True)) == 12


def test_weights_are_ordered() -> None:
    assert Policy(fail_at=Weight.NOTE).fails(Weight.GRAVE) and not Policy(fail_at=Weight.GRAVE).fails(Weight.WARNING)
