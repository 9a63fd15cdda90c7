"""Values of the advisor: cluster snapshots, reliability profiles, rules, findings and policies.

Rules judge a snapshot and nothing else. What could not be read is a value too (`BlindSpot`), so no rule passes for lack
of data.

A CP topic loses no acknowledged record, and refuses writers otherwise (acks=all, min.insync.replicas of N/2 + 1 of N
replicas, no unclean election). An AP topic stays available with one replica left (acks=1, min.insync.replicas=1, no
unclean election). Brokers do not report acks, so a topic is CP or AP for producers with these acks.
"""

from __future__ import annotations

import datetime
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from importlib import resources
from typing import Any, Generic, Protocol, TypeVar

from pydantic import Field

from twinshore.config.errors import ConfigError
from twinshore.config.grouping import grouped
from twinshore.config.model import TopicPartition
from twinshore.config.schema import Complaints, SettingFields, check_pattern, did_you_mean, read_keys
from twinshore.kafka.protocol.access_control import Acl

OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARES_TOPIC = "__consumer_offsets", "__transaction_state", "__share_group_state"
NO_LEADER = -1
# From this metadata.version on (Kafka 3.7) brokers cap min.insync.replicas at the number of replicas.
CAPPED_MIN_ISR_LEVEL = 15


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """A setting's effective value. `own`: set on the topic itself, not by brokers or Kafka's default."""

    value: str
    own: bool = False


@dataclass(frozen=True, slots=True)
class BrokerSnapshot:
    """`settings` is None if unreadable. `supports`: the broker's highest metadata.version, 0 if unreadable."""

    node: int
    rack: str = ""
    settings: Mapping[str, ConfigValue] | None = None
    supports: int = 0

    @property
    def caps_min_isr(self) -> bool:
        """Whether the broker caps min.insync.replicas at the number of replicas. Older ones, and perhaps those of
        unknown version, refuse acks=all beyond.
        """
        return self.supports >= CAPPED_MIN_ISR_LEVEL

    def number(self, setting: str) -> int | None:
        """The setting as a number; None if unreadable."""
        return _count(self.settings, setting)

    def says(self, setting: str) -> str | None:
        """The setting as text; None if unreadable."""
        return _text(self.settings, setting)


@dataclass(frozen=True, slots=True)
class PartitionSnapshot:
    """`replicas` are in assignment order, the preferred leader first; `leader` is -1 if there is none.

    During a reassignment `replicas` are the old ones, `adding` are being copied, and `removing` go afterwards.
    """

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
    """`settings` is None if unreadable."""

    name: str
    partitions: tuple[PartitionSnapshot, ...]
    settings: Mapping[str, ConfigValue] | None = None
    internal: bool = False

    @property
    def copies(self) -> int:
        """The smallest number of replicas of any partition."""
        return min((len(tp.replicas) for tp in self.partitions), default=0)

    @property
    def settled(self) -> bool:
        """Whether each partition has a leader and all replicas in sync, and none is being reassigned.

        Otherwise a change of min.insync.replicas makes the cluster forget eligible leader replicas, perhaps the last
        possible leader.
        """
        return not self.moves and all(
            tp.leader != NO_LEADER and set(tp.replicas) <= set(tp.isr) for tp in self.partitions
        )

    @property
    def moves(self) -> bool:
        return any(tp.moves for tp in self.partitions)

    def number(self, setting: str) -> int | None:
        return _count(self.settings, setting)

    def says(self, setting: str) -> str | None:
        return _text(self.settings, setting)

    def is_set_on_topic(self, setting: str) -> bool:
        known = (self.settings or {}).get(setting)
        return known is not None and known.own


@dataclass(frozen=True, slots=True)
class EarlierPosition:
    """The same committed offset and log end `apart_s` seconds earlier."""

    offset: int
    log_end: int
    apart_s: float


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """A group's committed offset in a partition.

    `next_age_ms`: age of the next record, None if unknown. `waits`: a working group would have read that record by now;
    None if unknown. `markers`: how many of few remaining offsets are transaction markers, which consumers never get.
    """

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
        return max(0, self.offsets_left - self.markers)

    @property
    def offsets_left(self) -> int:
        return max(0, self.log_end - max(self.offset, self.log_start))

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class ConsumerGroupSnapshot:
    """`unplaced`: partitions with records but no committed offset, in topics that the group commits or a member is
    assigned.
    """

    name: str
    live: bool
    places: tuple[GroupPosition, ...]
    unplaced: tuple[str, ...] = ()

    def by_topic(self) -> dict[str, list[GroupPosition]]:
        return grouped((position.topic, position) for position in self.places)


def replace_positions(
    groups: Iterable[ConsumerGroupSnapshot], judged: Callable[[GroupPosition], GroupPosition]
) -> tuple[ConsumerGroupSnapshot, ...]:
    return tuple(replace(group, places=tuple(map(judged, group.places))) for group in groups)


@dataclass(frozen=True, slots=True)
class TwinSnapshot:
    """`lag`: records missing, None if unknown. `stopped`: number of stopped partitions. `differs`: setting, the twin's
    value, the expected value; None is Kafka's default.
    """

    topic: str
    name: str
    lag: int | None
    stopped: int
    differs: tuple[tuple[str, str | None, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class LinkSnapshot:
    """`bootstrap` and `secured` are the target's. `runs`: a mirror reports the status now. `lacks`: ACLs missing on the
    target. `left`: ACLs that the mirror wrote there and that should be gone. `open`: only the source has an authorizer.
    """

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
    """Something that could not be read, why, and what would make it readable."""

    what: str
    why: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """`finalized`: the cluster's metadata.version, 0 if unknown. `eligible`: the cluster elects eligible leader
    replicas. `secured`: clients need security settings. `in_part`: only a selection of topics was read.
    """

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
    # Plans of `placed` by number of replicas: each rule asks for them, for each topic.
    placed: dict[int, Mapping[str, Mapping[int, Sequence[int]]]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )
    _by_name: Mapping[str, TopicSnapshot] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "racks", {broker.node: broker.rack for broker in self.brokers})
        object.__setattr__(self, "_by_name", {topic.name: topic for topic in self.topics})

    def effective_min_isr(self, minimum: int, copies: int) -> int:
        """Since Kafka 3.7 min.insync.replicas counts at most as many replicas as the partition has."""
        return min(minimum, copies) if self.capped else minimum

    @property
    def capped(self) -> bool:
        return bool(self.brokers) and all(broker.caps_min_isr for broker in self.brokers)

    def topic(self, name: str) -> TopicSnapshot | None:
        return self._by_name.get(name)

    def own_topics(self) -> Iterable[TopicSnapshot]:
        """Topics of applications, without Kafka's internal ones."""
        return (topic for topic in self.topics if not topic.internal)


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
    """`differs`: what keeps the topic from CP and AP; empty if it is either."""

    topic: str
    kind: ReliabilityKind
    replicas: int
    min_insync: int | None
    unclean: bool | None
    differs: tuple[str, ...] = ()


def compute_majority(copies: int) -> int:
    """N/2 + 1: any two such sets of replicas share one."""
    return copies // 2 + 1


def build_profile(topic: TopicSnapshot, *, capped: bool = False) -> ReliabilityProfile:
    """`capped`: as in `ClusterSnapshot`."""
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


def build_profiles(snapshot: ClusterSnapshot) -> tuple[ReliabilityProfile, ...]:
    return tuple(build_profile(topic, capped=snapshot.capped) for topic in snapshot.own_topics() if topic.partitions)


class Severity(StrEnum):
    """`grave`: one fault loses records or stops writers, or has. `warning`: a fault and bad luck would. `note`: worth
    knowing.
    """

    CRITICAL = "grave"
    WARNING = "warning"
    NOTE = "note"


SEVERITIES = tuple(Severity)


@dataclass(frozen=True, slots=True)
class RuleLimit:
    """A rule's threshold; a policy may override it. `whole`: an integer."""

    name: str
    default: float
    says: str
    whole: bool = False


# Limits shared by several rules: with different values their commands would undo each other, or findings would
# contradict. A policy sets them in [limits].
SHARED_LIMITS = (
    RuleLimit("copies", 3, "replicas that a partition should have", whole=True),
    RuleLimit("min_insync", 2, "min.insync.replicas that Kafka's own topics and new ones should have", whole=True),
    RuleLimit(
        "waited", 120, "seconds that a group's next record must have waited before the group is said to stand still"
    ),
)


@dataclass(frozen=True, slots=True)
class TopicConfigChange:
    """Topic settings that `--fix` may set: no working write is refused, and no record deleted."""

    topic: str
    settings: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"topic {self.topic}: " + ", ".join(f"{name}={value}" for name, value in self.settings)


@dataclass(frozen=True, slots=True)
class RuleCase:
    """`commands` fix the case as typed lines; `by_hand`: what no command can do. `safe` alone fixes all of it.
    `severity` overrides the rule's, where an owner asked for it.
    """

    subject: str
    evidence: str
    commands: tuple[str, ...] = ()
    by_hand: str = ""
    safe: TopicConfigChange | None = None
    severity: Severity | None = None


JudgeCluster = Callable[[ClusterSnapshot, Mapping[str, float]], Iterable[RuleCase]]


@dataclass(frozen=True, slots=True)
class AdvisorRule:
    """`says`: the finding. `risk`: what is at risk. `event`: when that happens. `story`: the simulator's story of it,
    or empty. `judge` takes the snapshot and the limits by name, shared ones included.
    """

    name: str
    severity: Severity
    says: str
    risk: str
    event: str
    judge: JudgeCluster
    limits: tuple[RuleLimit, ...] = ()
    story: str = ""


def read_rules(kind: str) -> dict[str, dict[str, Any]]:
    """The rules of `rules.json` in report order: the fields of each but its judge. `kind`: "cluster" or "client"."""
    text = resources.files("twinshore.advisor").joinpath("rules.json").read_text(encoding="utf-8")
    rules: dict[str, dict[str, Any]] = json.loads(text)[kind]
    for name, rule in rules.items():
        limits = tuple(RuleLimit(limit, *values) for limit, values in rule.get("limits", {}).items())
        rule |= {"name": name, "severity": Severity(rule["severity"]), "limits": limits}
    return rules


@dataclass(frozen=True, slots=True)
class Finding:
    rule: str
    severity: Severity
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
        """Identifies the finding across readings."""
        return self.rule, self.subject


def build_finding(rule: AdvisorRule, found: RuleCase) -> Finding:
    return Finding(
        rule.name,
        found.severity or rule.severity,
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


POLICY_KEYS: SettingFields = {
    "fail_at": (Severity, Field(Severity.WARNING, strict=False)),
    "limits": (dict[str, Any], {}),
    "rules": (dict[str, dict[str, Any]], {}),
    "waivers": (list[dict[str, Any]], []),
}
_SHARED_NAMES = frozenset(limit.name for limit in SHARED_LIMITS)
LIMIT_MAX = 1e18
_WORDS = Field(min_length=1)
WAIVER_KEYS: SettingFields = {
    "rule": (str, _WORDS),
    "subject": (str, _WORDS),
    "reason": (str, _WORDS),
    "until": (datetime.date, ...),
}


class PolicyRule(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def limits(self) -> tuple[RuleLimit, ...]: ...


class PolicyFinding(Protocol):
    @property
    def rule(self) -> str: ...
    @property
    def subject(self) -> str: ...
    @property
    def severity(self) -> Severity: ...
    @property
    def says(self) -> str: ...


F = TypeVar("F", bound=PolicyFinding)


@dataclass(frozen=True, slots=True)
class Waiver:
    """Waives the rule's findings whose subject fully matches the expression `subject`, through the day `until`."""

    rule: str
    subject: str
    reason: str
    until: datetime.date

    def meets(self, finding: PolicyFinding) -> bool:
        return finding.rule == self.rule and re.fullmatch(self.subject, finding.subject) is not None

    def holds(self, day: datetime.date) -> bool:
        return day <= self.until


@dataclass(frozen=True, slots=True)
class WaivedFinding(Generic[F]):
    finding: F
    waiver: Waiver

    def __str__(self) -> str:
        return f"{self.finding.rule}, {self.finding.subject}"


@dataclass(frozen=True, slots=True)
class AdvisorPolicy:
    """`fail_at`: the least severity that fails the run. `limits`: overrides by rule and name; shared limits have the
    rule "".
    """

    fail_at: Severity = Severity.WARNING
    off: frozenset[str] = frozenset()
    limits: Mapping[tuple[str, str], float] = field(default_factory=dict)
    waivers: tuple[Waiver, ...] = ()

    def limits_of(self, rule: PolicyRule) -> dict[str, float]:
        owned = [("", limit) for limit in SHARED_LIMITS] + [(rule.name, limit) for limit in rule.limits]
        return {limit.name: self.limits.get((owner, limit.name), limit.default) for owner, limit in owned}

    def fails(self, severity: Severity) -> bool:
        return SEVERITIES.index(severity) <= SEVERITIES.index(self.fail_at)

    def exit_code(self, open_findings: Iterable[PolicyFinding], unseen: Sequence[BlindSpot]) -> int:
        """1: a finding fails the policy. 2: none does, but something could not be read. 0: neither."""
        if any(self.fails(finding.severity) for finding in open_findings):
            return 1
        return 2 if unseen else 0

    def waive(self, findings: Iterable[F], day: datetime.date) -> tuple[tuple[F, ...], tuple[WaivedFinding[F], ...]]:
        """Returns the open findings, and the waived ones."""
        still: list[F] = []
        waived: list[WaivedFinding[F]] = []
        for finding in findings:
            waiver = next((one for one in self.waivers if one.meets(finding) and one.holds(day)), None)
            if waiver is None:
                still.append(finding)
            else:
                waived.append(WaivedFinding(finding, waiver))
        return tuple(still), tuple(waived)

    def remarks(self, found: Sequence[PolicyFinding], day: datetime.date) -> Iterator[str]:
        """Remarks on the policy itself, such as expired waivers."""
        for waiver in self.waivers:
            what = f"the waiver of {waiver.rule} for {waiver.subject!r} ({waiver.reason})"
            if not waiver.holds(day):
                yield f"{what} ended on {waiver.until}: what it passed over counts again"
            elif not any(waiver.meets(finding) for finding in found):
                yield f"{what} meets nothing: take it out of the policy"
        if self.off:
            yield f"the policy leaves out {', '.join(sorted(self.off))}"


def parse_policy(text: str, name: str, rules: Sequence[PolicyRule]) -> AdvisorPolicy:
    """Parses a policy file. Raises a ConfigError that names every fault."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError("advisor.invalid-policy", policy=name, faults=str(error)) from error
    complaints, known = Complaints(), {rule.name: rule for rule in rules}
    policy = read_keys(POLICY_KEYS, table, "", complaints)
    off, limits = set[str](), _limits("", SHARED_LIMITS, {}, policy.get("limits", {}), "[limits]", complaints)
    for rule, section in policy.get("rules", {}).items():
        place = f"[rules.{rule}]"
        if rule not in known:
            complaints.add(place, f"is no rule{did_you_mean(rule, known)}")
            continue
        if section.keys() & _SHARED_NAMES:
            complaints.add(place, "has no limits of all rules: those stand in [limits]")
        limits |= _limits(rule, known[rule].limits, {"enabled": (bool, True)}, section, place, complaints)
        off |= {rule} if section.get("enabled") is False else set()
    waivers = [_waiver(row, f"waiver {at}:", known, complaints) for at, row in enumerate(policy.get("waivers", ()), 1)]
    if complaints.lines:
        raise ConfigError("advisor.invalid-policy", policy=name, faults="; ".join(complaints.lines))
    return AdvisorPolicy(policy["fail_at"], frozenset(off), limits, tuple(filter(None, waivers)))


def _limits(
    rule: str, limits: Iterable[RuleLimit], also: SettingFields, raw: object, place: str, complaints: Complaints
) -> dict[tuple[str, str], float]:
    """The limits of a rule, or with an empty `rule` those of all rules."""
    kinds = {
        limit.name: (int, Field(1, ge=1, le=LIMIT_MAX)) if limit.whole else (float, Field(0.0, ge=0, le=LIMIT_MAX))
        for limit in limits
    }
    given = read_keys({**kinds, **also}, raw, place, complaints, only_given=True)
    return {(rule, name): float(value) for name, value in given.items() if name in kinds}


def _waiver(row: object, place: str, known: Mapping[str, PolicyRule], complaints: Complaints) -> Waiver | None:
    values = read_keys(WAIVER_KEYS, row, place, complaints)
    if not values:
        return None
    if values["rule"] not in known:
        complaints.add(place, f"{values['rule']!r} is no rule{did_you_mean(values['rule'], known)}")
    check_pattern(values["subject"], "subject", place, complaints)
    return Waiver(**values)
