"""A plan in one line a topic: all that somebody decides by is in it, and nothing that comes once for each rule."""

from __future__ import annotations

from twinshore.config.incident_policy import IncidentKind
from twinshore.replication.core.mapping import Cost
from twinshore.replication.core.model import AtHome, CarryTopic, Create, Grow, PlanStep, Refuse, Rest, Settle, Stay
from twinshore.replication.operations.run_plan import summarize_plan
from twinshore.replication.sync.core import decisions
from twinshore.replication.sync.core.decisions import Change, Remark
from twinshore.replication.sync.core.lifecycle import TOPIC_KIND

LINK = "east->west"
SETTINGS = (("retention.ms", "-1"), ("cleanup.policy", "delete"))
FIGURES = "about 2.0 MB in 4000 offsets, 5 s at 50.0 MB/s (assumed)"


def cost(topic: str, mode: str = "exact") -> Cost:
    return Cost(topic, mode, 4000, 2_000_000, 0, 0, 5.04, 50e6, measured=False)


def rest(partition: int, *, retries: bool = False) -> Rest:
    return Rest("orders", partition, 7, IncidentKind.TRUNCATION, "the source lost 5 to 9", retries)


def test_a_new_twin_is_one_line_without_its_settings() -> None:
    steps: list[PlanStep | Cost] = [
        Create("orders", 3, 1, SETTINGS),
        Create("bills", 1, 3, SETTINGS, "east.bills"),
        cost("orders"),
    ]
    assert summarize_plan(LINK, [*steps, cost("bills")], []) == [
        f"create twin orders: 3 partitions, 1 copy; {FIGURES}",
        f"create twin east.bills of bills: 1 partition, 3 copies; {FIGURES}",
    ]


def test_all_that_becomes_of_a_topic_stands_in_its_line() -> None:
    carry = CarryTopic("orders", 6, "aa", "bb")
    grow, settle = Grow("orders", 6, "bb"), Settle("orders", SETTINGS, "bb")
    steps: list[PlanStep | Cost] = [AtHome("orders", "east"), grow, settle, carry]
    assert summarize_plan(LINK, [*steps, rest(1), rest(2, retries=True), cost("orders")], []) == [
        "replicate orders: 6 partitions, at home on east, its twin grows to 6 partitions, 2 settings of its twin to "
        "change, without orders-1 (incident 7, truncation; then `twinshore mirror resume`), "
        f"orders-2 (incident 7, truncation; it is retried by itself); {FIGURES}"
    ]


def test_a_mapped_topic_s_places_are_left_to_the_details() -> None:
    steps: list[PlanStep | Cost] = [CarryTopic("orders", 2, "aa", "bb", mapped=True), cost("orders", "mapped")]
    assert summarize_plan(LINK, steps, []) == [f"replicate orders: 2 partitions, mapped; {FIGURES}"]


def test_what_is_not_carried_says_why_and_what_to_do() -> None:
    refuse = Refuse("bills", IncidentKind.FOREIGN_WRITE, "topic bills holds data", "exclude it")
    stay = Stay("clicks", "topic clicks: it is paused")
    assert summarize_plan(LINK, [refuse, AtHome("bills", "east"), rest(0), rest(4), stay], []) == [
        "refuse: topic bills holds data (try: exclude it)",
        "do not replicate orders-0: incident 7 stops it, truncation: the source lost 5 to 9; then `twinshore mirror "
        "resume` (and 1 more partition)",
        "leave unchanged: topic clicks: it is paused",
    ]


def test_what_follows_is_counted_but_for_what_becomes_of_a_topic() -> None:
    gone = Change(TOPIC_KIND, "old", "", "its twin old is deleted: the source deleted it")
    away = Remark(decisions.QUOTA_KIND, LINK, "does not follow: west does not answer")
    many = [Change(decisions.ACL_KIND, f"rule {number}", "", decisions.ACL_GIVEN) for number in range(1200)]
    one = Change(decisions.SETTING_KIND, "orders retention.ms", "1", "2")
    held = [Remark(decisions.ACL_KIND, f"rule {number}", "held back") for number in range(2)]
    assert summarize_plan(LINK, [], [gone, one, *many, *held, away]) == [
        str(gone),
        str(away),
        "besides records: 1 topic setting, 1,200 ACLs to change; remarks on 2 ACLs (--details shows each)",
    ]
