"""What was seen of a cluster, as values. Pure: rules judge these and nothing else.

What could not be seen is a value as well (`BlindSpot`), so that nothing passes because nobody could look at it.

Which promise a topic keeps: CP, AP or neither. Pure.

CP keeps records consistent: what was acknowledged is not lost, and where that cannot be promised writers are refused.
Its settings are acks=all, min.insync.replicas of N/2 + 1 of N replicas, no unclean election. AP stays available with
one replica left: acks=1, min.insync.replicas=1, no unclean election. Acks are the producer's, and no broker tells them,
so a topic is CP or AP for producers with these acks.

What a rule and a finding are. Pure.

A rule is data: what is at risk and in which event, for the report and for the page, and one small function that says
where it is so.

What an operator wants judged, and how: which rules, which limits, what is waived until when. Pure.

A policy is a file of TOML. A waiver has a reason and an end, so that nothing is passed over for ever.
"""

from __future__ import annotations

import datetime
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol

from twinshore.config.errors import ConfigError
from twinshore.config.schema import Complaints, did_you_mean
from twinshore.kafka.protocol.access_control import Acl

OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARES_TOPIC = "__consumer_offsets", "__transaction_state", "__share_group_state"
NO_LEADER = -1
# The metadata.version from which on brokers take no more replicas for needed than there are: that of Kafka 3.7.
CAPPED_MIN_ISR_LEVEL = 15


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """A setting's value in force. `own`: set on the topic itself; otherwise brokers or Kafka's default say so."""

    value: str
    own: bool = False


@dataclass(frozen=True, slots=True)
class BrokerSnapshot:
    """`settings` is None where they could not be seen. `supports` is the highest metadata.version that its program
    knows, 0 where it could not be asked."""

    node: int
    rack: str = ""
    settings: Mapping[str, ConfigValue] | None = None
    supports: int = 0

    @property
    def caps_min_isr(self) -> bool:
        """Whether it takes min.insync.replicas for no more than there are; older ones take nothing with acks=all then,
        and so may one whose version could not be seen."""
        return self.supports >= CAPPED_MIN_ISR_LEVEL

    def number(self, setting: str) -> int | None:
        """The setting as a number; None where it could not be seen."""
        return _count(self.settings, setting)

    def says(self, setting: str) -> str | None:
        """The setting as text; None where it could not be seen."""
        return _text(self.settings, setting)


@dataclass(frozen=True, slots=True)
class PartitionSnapshot:
    """`replicas` are in the order of assignment, the preferred leader first; `leader` is -1 where there is none. Of a
    partition on the move they are those of before: `adding` are copied now, and may be in sync already; `removing` go
    once those are."""

    number: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def moves(self) -> bool:
        return bool(self.adding or self.removing)


@dataclass(frozen=True, slots=True)
class TopicSnapshot:
    """`settings` is None where they could not be seen."""

    name: str
    partitions: tuple[PartitionSnapshot, ...]
    settings: Mapping[str, ConfigValue] | None = None
    internal: bool = False

    @property
    def copies(self) -> int:
        """Of the partition that has the fewest."""
        return min((len(one.replicas) for one in self.partitions), default=0)

    @property
    def settled(self) -> bool:
        """Each partition has a leader and all of its replicas in sync, and none is on the move. Otherwise a change of
        min.insync.replicas may harm: it makes the cluster forget its eligible leader replicas, and the last that could
        lead may be one."""
        return not self.moves and all(
            one.leader != NO_LEADER and set(one.replicas) <= set(one.isr) for one in self.partitions
        )

    @property
    def moves(self) -> bool:
        """A partition of it is given other replicas right now."""
        return any(one.moves for one in self.partitions)

    def number(self, setting: str) -> int | None:
        return _count(self.settings, setting)

    def says(self, setting: str) -> str | None:
        return _text(self.settings, setting)

    def is_set_on_topic(self, setting: str) -> bool:
        """Whether the setting is set on the topic itself."""
        known = (self.settings or {}).get(setting)
        return known is not None and known.own


@dataclass(frozen=True, slots=True)
class EarlierPosition:
    """The same place at an earlier look, `apart_s` before."""

    offset: int
    log_end: int
    apart_s: float


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """Where a group reads on in a partition. `next_age_ms`: how old the next record is that it will read, None where
    that was not asked or not told. `waits`: that record has waited for so long that a group at work would have read it,
    None where that was not told. `markers`: so many of the offsets that are left, where these are few, are those of
    markers of transactions, which no consumer is given."""

    topic: str
    partition: int
    offset: int
    log_start: int
    log_end: int
    before: EarlierPosition | None = None
    next_age_ms: int | None = None
    waits: bool | None = None
    markers: int = 0

    @property
    def lag(self) -> int:
        """Records to read."""
        return max(0, self.offsets_left - self.markers)

    @property
    def offsets_left(self) -> int:
        return max(0, self.log_end - max(self.offset, self.log_start))

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class ConsumerGroupSnapshot:
    """`unplaced`: partitions with records where it has no place, of topics in which it has others, or which a member
    of it holds now."""

    name: str
    live: bool
    places: tuple[GroupPosition, ...]
    unplaced: tuple[str, ...] = ()

    def by_topic(self) -> dict[str, list[GroupPosition]]:
        found: dict[str, list[GroupPosition]] = {}
        for place in self.places:
            found.setdefault(place.topic, []).append(place)
        return found


def replace_positions(
    groups: Iterable[ConsumerGroupSnapshot], judged: Callable[[GroupPosition], GroupPosition]
) -> tuple[ConsumerGroupSnapshot, ...]:
    """The same groups, with each place as it is judged."""
    return tuple(replace(group, places=tuple(map(judged, group.places))) for group in groups)


@dataclass(frozen=True, slots=True)
class TwinSnapshot:
    """The twin of a topic. `lag`: records that it lacks, None where nobody knows. `stopped`: partitions that are not
    carried. `differs`: setting, what the twin has, what it should have; None is Kafka's default."""

    topic: str
    name: str
    lag: int | None
    stopped: int
    differs: tuple[tuple[str, str | None, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class LinkSnapshot:
    """A link from the cluster. `bootstrap` and `secured` are its target's; `runs`: a mirror says now how it stands.
    `lacks`: ACLs that the target should have, `left`: those that the mirror wrote there and that should be gone.
    `open`: the cluster has an authorizer, and the target has none."""

    name: str
    bootstrap: tuple[str, ...]
    secured: bool
    runs: bool
    says: str
    twins: tuple[TwinSnapshot, ...] = ()
    incidents: tuple[str, ...] = ()
    lacks: tuple[Acl, ...] = ()
    left: tuple[Acl, ...] = ()
    open: bool = False


@dataclass(frozen=True, slots=True)
class BlindSpot:
    """Something that nobody could look at from here, why, and what would let it be seen."""

    what: str
    why: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """One look. `finalized` is the metadata.version that the cluster works by, 0 where it was not told. `eligible`: it
    elects eligible leader replicas. `secured`: clients need settings of their own to reach it. `in_part`: there may be
    topics beside these, which nobody wanted looked at."""

    cluster: str
    bootstrap: tuple[str, ...]
    at_ms: int
    cluster_id: str = ""
    secured: bool = False
    finalized: int = 0
    eligible: bool = False
    in_part: bool = False
    brokers: tuple[BrokerSnapshot, ...] = ()
    topics: tuple[TopicSnapshot, ...] = ()
    groups: tuple[ConsumerGroupSnapshot, ...] = ()
    links: tuple[LinkSnapshot, ...] = ()
    unseen: tuple[BlindSpot, ...] = ()
    racks: Mapping[int, str] = field(init=False, repr=False, compare=False)
    # What `placed` has worked out for so many copies: each rule asks for it, of each topic.
    placed: dict[int, Mapping[str, Mapping[int, Sequence[int]]]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )
    _by_name: Mapping[str, TopicSnapshot] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "racks", {one.node: one.rack for one in self.brokers})
        object.__setattr__(self, "_by_name", {one.name: one for one in self.topics})

    def effective_min_isr(self, minimum: int, copies: int) -> int:
        """Since Kafka 3.7 a partition with fewer replicas than min.insync.replicas asks for takes records as if it
        asked for as many as there are, both to take them and to acknowledge them."""
        return min(minimum, copies) if self.capped else minimum

    @property
    def capped(self) -> bool:
        """Whether that is so of every broker that may lead."""
        return bool(self.brokers) and all(one.caps_min_isr for one in self.brokers)

    def topic(self, name: str) -> TopicSnapshot | None:
        return self._by_name.get(name)

    def own_topics(self) -> Iterable[TopicSnapshot]:
        """Those of applications, not Kafka's own."""
        return (one for one in self.topics if not one.internal)


def _count(settings: Mapping[str, ConfigValue] | None, setting: str) -> int | None:
    text = _text(settings, setting)
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None


def _text(settings: Mapping[str, ConfigValue] | None, setting: str) -> str | None:
    known = (settings or {}).get(setting)
    return known.value if known is not None else None


MIN_ISR_CONFIG, UNCLEAN_ELECTION_CONFIG = "min.insync.replicas", "unclean.leader.election.enable"


class ReliabilityKind(StrEnum):
    CP = "CP"
    AP = "AP"
    NEITHER = "neither"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ReliabilityProfile:
    """`differs`: what would have to be otherwise for the nearest of both; empty where it is one of them."""

    topic: str
    kind: ReliabilityKind
    copies: int
    min_isr: int | None
    unclean: bool | None
    differs: tuple[str, ...] = ()


def compute_majority(copies: int) -> int:
    """N/2 + 1: any two such sets of replicas share one."""
    return copies // 2 + 1


def build_profile(topic: TopicSnapshot, *, capped: bool = False) -> ReliabilityProfile:
    """Its kind, and what differs. `capped`: as `ClusterSnapshot.capped`."""
    minimum, unclean = topic.number(MIN_ISR_CONFIG), topic.says(UNCLEAN_ELECTION_CONFIG)
    copies = topic.copies
    if minimum is None or unclean is None:
        return ReliabilityProfile(
            topic.name, ReliabilityKind.UNKNOWN, copies, minimum, None, ("its settings could not be seen",)
        )
    elects = unclean == "true"
    above, needed = minimum > max(copies, 1), min(minimum, max(copies, 1))
    differs = []
    if copies < 2:
        asks = f"; {MIN_ISR_CONFIG} asks for {minimum}, Kafka takes {needed}" if above and capped else ""
        differs.append(f"one replica: whatever the acks, its broker's loss is the records' loss{asks}")
    if elects:
        differs.append(f"{UNCLEAN_ELECTION_CONFIG} is true: both CP and AP want false")
    if 1 < minimum < compute_majority(copies):
        differs.append(f"{MIN_ISR_CONFIG} is {minimum}: CP wants {compute_majority(copies)} of {copies}, AP wants 1")
    if above and not capped:
        differs.append(f"{MIN_ISR_CONFIG} is {minimum} of {copies} replicas: nothing with acks=all can be written")
    if differs:
        return ReliabilityProfile(topic.name, ReliabilityKind.NEITHER, copies, minimum, elects, tuple(differs))
    kind = ReliabilityKind.CP if minimum >= compute_majority(copies) else ReliabilityKind.AP
    return ReliabilityProfile(topic.name, kind, copies, minimum, elects)


def build_profiles(seen: ClusterSnapshot) -> tuple[ReliabilityProfile, ...]:
    """Of every topic of applications."""
    return tuple(build_profile(topic, capped=seen.capped) for topic in seen.own_topics() if topic.partitions)


class Severity(StrEnum):
    """`grave`: one fault loses records or stops writers, or has done so. `warning`: so will a fault and some bad luck.
    `note`: worth knowing."""

    CRITICAL = "grave"
    WARNING = "warning"
    NOTE = "note"


SEVERITIES = tuple(Severity)


@dataclass(frozen=True, slots=True)
class RuleLimit:
    """A threshold of a rule; a policy may set another."""

    name: str
    default: float
    says: str
    whole: bool = False


# What several rules go by: were it other for one of them, their commands would undo each other, or one would say what
# another one denies. A policy has it in [limits].
SHARED_LIMITS = (
    RuleLimit("copies", 3, "replicas that a partition should have", whole=True),
    RuleLimit("min_insync", 2, "min.insync.replicas that Kafka's own topics and new ones should have", whole=True),
    RuleLimit(
        "waited", 120, "seconds that a group's next record must have waited before the group is said to stand still"
    ),
)


@dataclass(frozen=True, slots=True)
class TopicConfigChange:
    """Settings of one topic that `--fix` may set: no write that works now is refused because of them, and no record
    goes."""

    topic: str
    settings: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"topic {self.topic}: " + ", ".join(f"{name}={value}" for name, value in self.settings)


@dataclass(frozen=True, slots=True)
class RuleCase:
    """Where a rule's case is so. `commands` mend it, as they would be typed; `by_hand` says what no command can do.
    `safe`, by itself, mends all of it. `weight`, where it is another one than the rule's: an owner asked for it."""

    subject: str
    evidence: str
    commands: tuple[str, ...] = ()
    by_hand: str = ""
    safe: TopicConfigChange | None = None
    weight: Severity | None = None


JudgeCluster = Callable[[ClusterSnapshot, Mapping[str, float]], Iterable[RuleCase]]


@dataclass(frozen=True, slots=True)
class AdvisorRule:
    """`says` is the case, `risk` what is at risk, `event` when that happens. `judge` gets what was seen and the
    limits by name, those that are shared among them. `story`: which one of the simulator shows it, if one does."""

    name: str
    weight: Severity
    says: str
    risk: str
    event: str
    judge: JudgeCluster
    limits: tuple[RuleLimit, ...] = ()
    story: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule's case at one subject."""

    rule: str
    weight: Severity
    subject: str
    says: str
    risk: str
    event: str
    evidence: str
    commands: tuple[str, ...] = ()
    by_hand: str = ""
    safe: TopicConfigChange | None = None
    story: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """The same finding at another time has the same key."""
        return self.rule, self.subject


def build_finding(rule: AdvisorRule, found: RuleCase) -> Finding:
    return Finding(
        rule.name,
        found.weight or rule.weight,
        found.subject,
        rule.says,
        rule.risk,
        rule.event,
        found.evidence,
        found.commands,
        found.by_hand,
        found.safe,
        rule.story,
    )


POLICY_KEYS = ("fail_at", "limits", "rules", "waivers")
_SHARED_NAMES = frozenset(one.name for one in SHARED_LIMITS)
WAIVER_KEYS = ("rule", "subject", "reason", "until")


class PolicyRule(Protocol):
    """A rule, as far as a policy knows it."""

    @property
    def name(self) -> str: ...
    @property
    def limits(self) -> tuple[RuleLimit, ...]: ...


class PolicyFinding(Protocol):
    """A finding, as far as a policy knows it."""

    @property
    def rule(self) -> str: ...
    @property
    def subject(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Waiver:
    """Findings of the rule at subjects that the expression meets whole are passed over, through the day `until`."""

    rule: str
    subject: str
    reason: str
    until: datetime.date

    def meets(self, finding: PolicyFinding) -> bool:
        return finding.rule == self.rule and re.fullmatch(self.subject, finding.subject) is not None

    def holds(self, day: datetime.date) -> bool:
        return day <= self.until


@dataclass(frozen=True, slots=True)
class AdvisorPolicy:
    """`fail_at`: the least weight of a finding that makes the answer no. `limits` by rule and name, where they are
    other than by default; those that rules share are by "" and name."""

    fail_at: Severity = Severity.WARNING
    off: frozenset[str] = frozenset()
    limits: Mapping[tuple[str, str], float] = field(default_factory=dict)
    waivers: tuple[Waiver, ...] = ()

    def limits_of(self, rule: PolicyRule) -> dict[str, float]:
        owned = [("", one) for one in SHARED_LIMITS] + [(rule.name, one) for one in rule.limits]
        return {one.name: self.limits.get((owner, one.name), one.default) for owner, one in owned}

    def fails(self, weight: Severity) -> bool:
        return SEVERITIES.index(weight) <= SEVERITIES.index(self.fail_at)

    def waiver_of(self, finding: PolicyFinding, day: datetime.date) -> Waiver | None:
        """What passes the finding over on that day."""
        return next((one for one in self.waivers if one.meets(finding) and one.holds(day)), None)

    def remarks(self, found: Sequence[PolicyFinding], day: datetime.date) -> Iterator[str]:
        """What is to be known of the policy itself."""
        for waiver in self.waivers:
            what = f"the waiver of {waiver.rule} for {waiver.subject!r} ({waiver.reason})"
            if not waiver.holds(day):
                yield f"{what} ended on {waiver.until}: what it passed over counts again"
            elif not any(waiver.meets(one) for one in found):
                yield f"{what} meets nothing: take it out of the policy"
        if self.off:
            yield f"the policy leaves out {', '.join(sorted(self.off))}"


def parse_policy(text: str, name: str, rules: Sequence[PolicyRule]) -> AdvisorPolicy:
    """The policy of a file's text; a ConfigError that names all that is wrong with it."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"policy {name}: {error}") from error
    wrong = Complaints()
    for key in table.keys() - set(POLICY_KEYS):
        wrong.add("", f"{key!r} is no key of a policy{did_you_mean(key, POLICY_KEYS)}")
    known = {rule.name: rule for rule in rules}
    fail_at = _fail_at(table.get("fail_at", Severity.WARNING.value), wrong)
    off, limits = _rules(table.get("rules", {}), known, wrong)
    limits |= _shared(table.get("limits", {}), wrong)
    waivers = _waivers(table.get("waivers", []), known, wrong)
    if wrong.lines:
        raise ConfigError(f"policy {name}: " + "; ".join(wrong.lines))
    return AdvisorPolicy(fail_at, frozenset(off), limits, waivers)


def _fail_at(value: Any, wrong: Complaints) -> Severity:
    try:
        return Severity(value)
    except ValueError:
        wrong.add("fail_at", f"is {value!r}; it is one of {', '.join(SEVERITIES)}")
        return Severity.WARNING


def _rules(
    table: Any, known: Mapping[str, PolicyRule], wrong: Complaints
) -> tuple[set[str], dict[tuple[str, str], float]]:
    off: set[str] = set()
    limits: dict[tuple[str, str], float] = {}
    if not isinstance(table, dict):
        wrong.add("rules", "has a section for each rule, as [rules.few-copies]")
        return off, limits
    for name, section in table.items():
        rule, place = known.get(name), f"[rules.{name}]"
        if rule is None:
            wrong.add(place, f"is no rule{did_you_mean(name, known)}")
            continue
        own = {limit.name: limit for limit in rule.limits}
        for key, value in section.items() if isinstance(section, dict) else ():
            if key in _SHARED_NAMES:
                wrong.add(place, f"has no {key!r} of its own: all rules go by that of [limits]")
            elif key not in ("enabled", *own):
                wrong.add(place, f"has no {key!r}{did_you_mean(key, ['enabled', *own])}")
            elif key == "enabled":
                if not isinstance(value, bool):
                    wrong.add(place, f"enabled must be true or false, not {value!r}")
                elif not value:
                    off.add(name)
            elif (number := _number(own[key], value, place, wrong)) is not None:
                limits[name, key] = number
    return off, limits


def _shared(table: Any, wrong: Complaints) -> dict[tuple[str, str], float]:
    limits: dict[tuple[str, str], float] = {}
    if not isinstance(table, dict):
        wrong.add("limits", "is a section: [limits]")
        return limits
    known = {one.name: one for one in SHARED_LIMITS}
    for name, value in table.items():
        if name not in known:
            wrong.add("[limits]", f"has no {name!r}{did_you_mean(name, known)}")
        elif (number := _number(known[name], value, "[limits]", wrong)) is not None:
            limits["", name] = number
    return limits


def _number(limit: RuleLimit, value: Any, place: str, wrong: Complaints) -> float | None:
    kind, least = (int, 1) if limit.whole else (int | float, 0)
    if isinstance(value, bool) or not isinstance(value, kind) or not _finite(value) or value < least:
        whole = "whole " if limit.whole else ""
        wrong.add(place, f"{limit.name} must be a {whole}number from {least} on, not {value!r}")
        return None
    return float(value)


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _waivers(rows: Any, known: Mapping[str, PolicyRule], wrong: Complaints) -> tuple[Waiver, ...]:
    found = []
    if not isinstance(rows, list):
        wrong.add("waivers", "is a list of tables, as [[waivers]]")
        return ()
    for number, row in enumerate(rows, 1):
        place = f"waiver {number}"
        if not isinstance(row, dict) or _lacks(row, place, known, wrong):
            continue
        found.append(Waiver(row["rule"], row["subject"], row["reason"].strip(), row["until"]))
    return tuple(found)


def _lacks(row: Mapping[str, Any], place: str, known: Mapping[str, PolicyRule], wrong: Complaints) -> bool:
    before = len(wrong.lines)
    for key in row.keys() - set(WAIVER_KEYS):
        wrong.add(place, f"has no {key!r}{did_you_mean(key, WAIVER_KEYS)}")
    for key in ("rule", "subject", "reason"):
        if not isinstance(row.get(key), str) or not row[key].strip():
            wrong.add(place, f"needs {key!r}, a text")
    rule = row.get("rule")
    if isinstance(rule, str) and rule not in known:
        wrong.add(place, f"is for {rule!r}, which is no rule{did_you_mean(rule, known)}")
    until = row.get("until")
    if not isinstance(until, datetime.date) or isinstance(until, datetime.datetime):
        wrong.add(place, "needs 'until', a day such as 2027-01-31")
    try:
        re.compile(str(row.get("subject", "")))
    except re.error as error:
        wrong.add(place, f"subject is no expression: {error}")
    return len(wrong.lines) > before
