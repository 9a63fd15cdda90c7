"""Rules that follow, with hands: in which order, what a refusal keeps back, and what a new twin waits for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from testkit.errors import mentions
from testkit.log_lines import LogLines
from twinshore.config.errors import KafkaError
from twinshore.config.settings import parse_settings
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.access_control import Acl, AclOperation, AclPermission, PatternType, ResourceType
from twinshore.kafka.protocol.error_codes import Code
from twinshore.replication.core.model import CarryTopic
from twinshore.replication.sync import cluster_comparison
from twinshore.replication.sync import syncer as rules_module
from twinshore.replication.sync import target_admin as hands_module
from twinshore.replication.sync.core.decisions import AclContext, own_acl
from twinshore.replication.sync.core.lifecycle import ObservedTopic, Presence
from twinshore.replication.sync.syncer import AclSync
from twinshore.replication.sync.target_admin import TargetAdmin
from twinshore.state.core.values import TwinRow
from twinshore.state.store import Store, open_store

LINK = "east->west"
SETTINGS = """
[clusters.east]
bootstrap = ["127.0.0.1:1"]
[clusters.west]
bootstrap = ["127.0.0.1:2"]
[links."east->west"]
"""
US = "User:mirror"
ORDERS = CarryTopic("orders", 1, "aa", "bb")
BILLS = CarryTopic("bills", 1, "cc", "dd")


def acl(name: str, *, deny: bool = False) -> Acl:
    permission = AclPermission.DENY if deny else AclPermission.ALLOW
    return Acl(ResourceType.TOPIC, name, PatternType.LITERAL, "User:anna", "*", AclOperation.READ, permission)


class Place:
    """Both clusters' rules as sets; the target refuses what a test says, and keeps account of what it was asked."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, said: LogLines, more: str = "") -> None:
        self.said = said
        self.east: set[Acl] | KafkaError | None = set()
        self.west: set[Acl] = set()
        self.refuses: set[Acl] = set()
        self.times_out = False  # it does what it is asked, and the answer says that nobody knows
        self.asked: list[Acl] = []
        self.us, self.open = US, False
        self.twin = ObservedTopic(Presence.THERE, "bb", 1)
        self.store: Store = open_store(f"sqlite:///{folder}/store.db")
        settings = parse_settings(SETTINGS + more, name="settings.toml", env={})
        self.link = settings.links[0]
        self.source, self.target = (KafkaCluster(settings.cluster(name)) for name in ("east", "west"))
        monkeypatch.setattr(rules_module, "read_acls", self._read)
        monkeypatch.setattr(cluster_comparison, "read_acl_context", self._ground)
        monkeypatch.setattr(cluster_comparison, "observe_topics", lambda _, names: dict.fromkeys(names, self.twin))
        monkeypatch.setattr(hands_module, "create_acls", lambda _, rules: self._change(rules, self.west.add))
        monkeypatch.setattr(hands_module, "delete_acls", lambda _, rules: self._change(rules, self.west.discard))
        self.hands = TargetAdmin(LINK, self.target, self.store)
        self.woken = 0
        ends = (self.source, self.target, self.store, self.hands)
        self.rules = AclSync(lambda: self.link, *ends, active=lambda: True, wake=self._wake, survey_s=1.0)

    def has_twin(self, topic: str) -> None:
        self.store.twins.save([TwinRow(LINK, topic, 0, "aa", "bb", 0, 0, 1)])

    def admitted(self, *steps: CarryTopic, known: Iterable[str] = ()) -> list[str]:
        return [step.topic for step in self.rules.admit(steps, set(known))[0]]

    def waits(self, *steps: CarryTopic) -> list[tuple[str, str]]:
        return [(one.kind, one.sentence) for one in self.rules.admit(steps, ())[1]]

    def look(self) -> str:
        try:
            self.rules.look()
        except KafkaError as error:
            return error.message
        return ""

    def close(self) -> None:
        self.source.close()
        self.target.close()
        self.store.close()

    def _wake(self) -> None:
        self.woken += 1

    def _read(self, cluster: KafkaCluster) -> frozenset[Acl] | None:
        found = self.east if cluster.name == "east" else self.west
        if isinstance(found, KafkaError):
            raise found
        return None if found is None else frozenset(found)

    def _ground(self, _: object, __: object, ___: object, twins: dict[str, str], ____: object) -> AclContext:
        return AclContext(twins, self.us, self.open)

    def _change(self, rules: Iterable[Acl], act: object) -> dict[Acl, KafkaError]:
        refused = {}
        for one in rules:
            self.asked.append(one)
            if one in self.refuses:
                refused[one] = KafkaError("west refuses", hint="give it", code=Code.cluster_authorization_failed)
            else:
                act(one)  # type: ignore[operator]
                if self.times_out:
                    refused[one] = KafkaError("west was slow", code=Code.request_timed_out, retriable=True)
        return refused


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines) -> Iterator[Place]:
    made = Place(tmp_path, monkeypatch, log_lines)
    yield made
    made.close()


def test_a_new_topic_is_carried_when_a_look_has_seen_its_rules(place: Place) -> None:
    place.east = {acl("orders")}
    assert place.admitted(ORDERS, BILLS, known=["bills"]) == ["bills"], "a twin that is known goes on"
    assert place.woken == 1
    place.look()
    assert acl("orders") in place.west
    assert place.admitted(ORDERS) == [], "what was made a moment ago has not been seen yet"
    assert not place.rules.news()
    place.look()
    assert place.rules.news()
    assert place.admitted(ORDERS) == ["orders"]
    assert not place.rules.news()


@pytest.mark.parametrize("twin", [ObservedTopic(Presence.THERE, "somebody's", 1), ObservedTopic(Presence.GONE)])
def test_no_rule_changes_where_the_twin_is_not_the_one_that_is_known(place: Place, twin: ObservedTopic) -> None:
    place.has_twin("orders")
    place.east = {acl("orders")}
    place.look()
    place.twin, place.east, place.asked = twin, {acl("orders", deny=True)}, []
    place.look()
    assert (place.west, place.asked) == ({acl("orders")}, [])
    place.twin = ObservedTopic(Presence.THERE, "bb", 1)
    place.look()
    assert place.west == {acl("orders", deny=True)}


def test_a_topic_without_rules_waits_for_one_look(place: Place) -> None:
    assert place.admitted(BILLS) == []
    place.look()
    assert place.admitted(BILLS) == ["bills"]


def test_nothing_waits_where_none_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines) -> None:
    off = Place(tmp_path, monkeypatch, log_lines, '[links."east->west".follow]\nacls = false\n')
    assert off.admitted(ORDERS) == ["orders"]
    off.close()


def test_nothing_waits_without_an_authorizer_or_the_right_to_read_its_rules(place: Place) -> None:
    place.east = KafkaError("not yours", code=Code.cluster_authorization_failed)
    assert place.admitted(ORDERS) == []
    assert place.look() == "not yours"
    assert place.admitted(ORDERS) == ["orders"]
    place.east = {acl("orders")}
    place.look()
    assert place.admitted(BILLS) == [], "now that rules can be read"
    place.east = None
    place.look()
    assert place.admitted(BILLS) == ["bills"]


def test_a_topic_waits_while_rules_cannot_be_read_and_says_why(place: Place) -> None:
    place.east = KafkaError("east is silent", retriable=True)
    place.admitted(ORDERS)
    place.look()
    assert [(kind, mentions(said, "orders", "east is silent")) for kind, said in place.waits(ORDERS)] == [
        ("source away", True)
    ]
    place.east = set()
    place.look()
    assert (place.admitted(ORDERS), place.waits(ORDERS)) == (["orders"], [])


def test_a_refused_rule_holds_up_its_own_topic_alone(place: Place) -> None:
    place.east = {acl("orders"), acl("bills")}
    place.refuses = {acl("orders")}
    place.admitted(ORDERS, BILLS)
    place.look()
    place.look()
    assert place.admitted(ORDERS, BILLS) == ["bills"]
    assert [(kind, mentions(said, "orders", "west refuses")) for kind, said in place.waits(ORDERS)] == [
        ("rights lost", True)
    ]
    place.refuses = set()
    place.look()
    place.look()
    assert place.admitted(ORDERS) == ["orders"]


def test_a_rule_whose_making_timed_out_is_ours_and_is_taken_back_with_its_like(place: Place) -> None:
    other = replace(acl("orders"), principal="User:bert")
    place.has_twin("orders")
    place.east, place.times_out = {acl("orders"), other}, True
    place.look()
    place.times_out = False
    place.look()
    assert place.west == {acl("orders"), other}
    place.east = {other}
    place.look()
    place.look()
    assert place.west == {other}


def test_a_ruled_topic_waits_for_whom_the_target_takes_us(place: Place) -> None:
    place.east, place.open, place.us = {acl("orders")}, True, ""
    place.admitted(ORDERS, BILLS)
    assert "allow.everyone.if.no.acl.found" in place.look()
    assert place.admitted(ORDERS, BILLS) == ["bills"], "open on both sides"
    ((kind, sentence),) = place.waits(ORDERS)
    assert kind == "refused"
    assert "`principal`" in sentence
    assert not place.west


def test_rules_of_an_expected_topic_are_not_taken_back_before_it_has_a_twin(place: Place) -> None:
    place.east = {acl("orders")}
    place.admitted(ORDERS)
    for _ in range(4):
        place.look()
    assert place.asked == [acl("orders")]
    place.has_twin("orders")
    place.look()
    assert acl("orders") in place.west


def test_what_forbids_is_written_before_what_allows_and_instead_of_it_where_it_is_refused(place: Place) -> None:
    place.has_twin("orders")
    place.has_twin("bills")
    allow, deny = acl("orders"), acl("orders", deny=True)
    place.east, place.refuses = {allow, deny, acl("bills")}, {deny}
    place.look()
    assert place.west == {acl("bills")}, "the other topic's goes on"
    place.refuses = set()
    place.look()
    assert place.asked.index(deny) < place.asked.index(allow)
    assert place.west == {allow, deny, acl("bills")}
    place.east, place.refuses = set(), {allow}
    place.look()
    assert place.west == {allow, deny}, "what forbids stays for as long as what it takes from"


def of_group(name: str, who: str = "User:anna", *, deny: bool = False, prefixed: bool = False) -> Acl:
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    return replace(acl(name, deny=deny), principal=who, pattern=pattern, resource=ResourceType.GROUP)


@pytest.mark.claim(
    "topics",
    "bounded-rights",
    "no ACL of a group allows anything on the target that a denial bounds which the target refused, "
    "whether of one group or of many",
)
@pytest.mark.parametrize(
    ("denial", "bound"),
    [
        (of_group("app-", deny=True, prefixed=True), of_group("app-billing")),
        (replace(of_group("app-", "User:*", deny=True, prefixed=True), host="10.0.0.7"), of_group("app-billing")),
        (of_group("*", deny=True), of_group("app-billing")),
        (of_group("app-billing", deny=True), of_group("app-", prefixed=True)),
        (of_group("app-billing", deny=True), of_group("*")),
        (of_group("app-", deny=True, prefixed=True), of_group("app-billing", "User:*")),
    ],
)
def test_nothing_is_allowed_that_a_refused_rule_for_many_groups_would_have_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, denial: Acl, bound: Acl, log_lines: LogLines
) -> None:
    wide = Place(
        tmp_path, monkeypatch, log_lines, '[links."east->west".follow]\ngroup_acls = true\nwide_group_acls = true\n'
    )
    wide.has_twin("orders")
    others = {of_group("ops-1"), of_group("app-billing", "User:bob"), acl("orders")}
    wide.east, wide.refuses = {denial, bound, *others}, {denial}
    wide.look()
    assert denial not in wide.west
    assert bound not in wide.west
    assert acl("orders") in wide.west, "a topic is no group"
    wide.refuses = set()
    wide.look()
    assert wide.west == {denial, bound, *others}
    wide.east, wide.refuses = set(), {bound}
    wide.look()
    assert wide.west >= {denial, bound}, "what forbids stays for as long as what it takes from"
    wide.close()


def test_no_rule_is_taken_off_where_ours_cannot_stand_instead(place: Place) -> None:
    place.has_twin("orders")
    place.east = {acl("orders")}
    place.look()
    own = own_acl("orders", US)
    place.east, place.open, place.refuses = set(), True, {own}
    place.look()
    assert place.west == {acl("orders")}
    place.refuses = set()
    place.look()
    place.look()
    assert place.west == {own}


def test_what_is_refused_again_and_again_is_told_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.has_twin("orders")
    place.east, place.refuses = {acl("orders")}, {acl("orders")}
    for _ in range(5):
        place.look()
    (row,) = place.store.audit.rows(LINK)
    assert row.outcome.startswith("refused: west refuses")
    assert len(place.said) == 1
    place.refuses = set()
    place.look()
    assert place.store.audit.rows(LINK)[0].outcome == "done"
    place.west.clear()
    place.refuses = {acl("orders")}
    place.look()
    assert len(place.said) == 3, "it was done in between, so it is news"
    monkeypatch.setattr(hands_module, "REFUSAL_LOG_INTERVAL_S", 0.0)
    place.look()
    assert len(place.said) == 4, "a day later"


def test_who_else_may_change_our_own_topics_is_told_of_both_sides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines
) -> None:
    """Also where no rule follows."""
    user = '[clusters.{0}.security]\nsasl = "PLAIN"\nusername = "{1}"\npassword_file = "x"\n'
    more = user.format("east", "mirror") + user.format("west", "mirror")
    place = Place(tmp_path, monkeypatch, log_lines, more + '[links."east->west".follow]\nacls = false\n')

    def told() -> list[str]:
        return [row.incident.sentence for row in place.store.incidents.rows(LINK, open_only=True)]

    wide = replace(acl("*"), operation=int(AclOperation.ALL))
    place.east = {wide}
    place.west = {replace(wide, principal=US), replace(wide, principal="User:operator")}
    place.look()
    (sentence,) = told()
    assert sentence.startswith("east lets others")
    assert "; west lets" in sentence
    place.west = {replace(wide, principal=US)}
    place.look()
    assert "west" not in told()[0]
    place.east = KafkaError("may not", code=Code.cluster_authorization_failed)
    assert place.look() == ""  # no rule follows, so none need be read
    place.east = None
    place.look()
    assert told() == []
    place.close()


def test_rules_of_groups_follow_what_operators_say_of_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines
) -> None:
    place = Place(tmp_path, monkeypatch, log_lines, '[links."east->west".follow]\ngroup_acls = true\n')
    place.has_twin("orders")
    ours, other = (replace(acl(name), resource=int(ResourceType.GROUP)) for name in ("ours", "other"))
    place.east = {ours, other}
    place.look()
    assert place.west == {ours, other}
    # As the driver learns it from the store, while the mirror runs.
    place.link = replace(place.link, control=replace(place.link.control, exclude_groups=("other",)))
    place.look()
    assert place.west == {ours}
    place.link = replace(place.link, control=replace(place.link.control, groups=("o.*",), exclude_groups=()))
    place.look()
    assert place.west == {ours, other}
    place.close()
