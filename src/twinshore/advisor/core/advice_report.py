"""The advice on a cluster: findings under a policy, waivers, blind spots, and changes since an earlier advice.

Also here: the commands of Kafka's own tools that fix a finding, and the advice as text and as one self-contained HTML
page.
"""

from __future__ import annotations

import datetime
import json
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any, Protocol

from pydantic import TypeAdapter

from twinshore.advisor.core.html_page import html_page
from twinshore.advisor.core.model import (
    MIN_ISR_CONFIG,
    SEVERITIES,
    AdvisorPolicy,
    AdvisorRule,
    BlindSpot,
    ClusterSnapshot,
    ConsumerGroupSnapshot,
    EarlierPosition,
    F,
    Finding,
    GroupPosition,
    PartitionSnapshot,
    ReliabilityKind,
    ReliabilityProfile,
    RuleCase,
    Severity,
    TopicSnapshot,
    WaivedFinding,
    build_finding,
    build_profiles,
)
from twinshore.advisor.core.simulator.playback import describe_ending, describe_model_config, describe_step, draw_state
from twinshore.advisor.core.simulator.search import STORIES, Story, play_story
from twinshore.config.errors import ConfigError
from twinshore.config.sentences import append_hint, count_phrase, join_names
from twinshore.kafka.protocol.access_control import Acl, AclOperation, AclPermission, PatternType, ResourceType

ADVICE_FORM_VERSION = 1
GROUP_STUCK_RULE, STUCK_GROUPS_NAMED_MAX = "group-stuck", 3
# What no broker reports to any client.
ACKS_BLIND_SPOT = BlindSpot(
    "acks of producers",
    "brokers do not tell them; CP holds for producers with acks=all alone",
    "see to acks=all and enable.idempotence=true in each producer: some client libraries have acks=1 by default;"
    " the story acks-1 of `twinshore simulate story` shows what that loses",
)
CONSUMER_CONFIG_BLIND_SPOT = BlindSpot(
    "auto.offset.reset and enable.auto.commit of consumers",
    "brokers do not tell them",
    "see to them in each consumer: `twinshore advise settings` says which; the story newest of"
    " `twinshore simulate story` shows why",
)


@dataclass(frozen=True, slots=True)
class RecordedPosition:
    """A group's committed offset, kept for a later reading."""

    group: str
    topic: str
    partition: int
    offset: int
    log_end: int


@dataclass(frozen=True, slots=True)
class Advice:
    """`findings` are open; `remarks` are on the policy. More rights or time would reveal `unseen`, nothing `untold`."""

    cluster: str
    cluster_id: str
    at_ms: int
    findings: tuple[Finding, ...]
    waived: tuple[WaivedFinding[Finding], ...] = ()
    unseen: tuple[BlindSpot, ...] = ()
    untold: tuple[BlindSpot, ...] = (ACKS_BLIND_SPOT, CONSUMER_CONFIG_BLIND_SPOT)
    profiles: tuple[ReliabilityProfile, ...] = ()
    remarks: tuple[str, ...] = ()
    places: tuple[RecordedPosition, ...] = ()


@dataclass(frozen=True, slots=True)
class AdviceDifference:
    """`unsure`: findings may be gone only because something could not be read. `not_checked`: number of earlier
    findings on rules or topics not checked this time.
    """

    since_ms: int
    new: tuple[Finding, ...]
    gone: tuple[Finding, ...]
    stays: int
    unsure: bool
    not_checked: int = 0


_ADVICE, _DIFFERENCE = TypeAdapter(Advice), TypeAdapter(AdviceDifference)


def build_advice(snapshot: ClusterSnapshot, policy: AdvisorPolicy, rules: Sequence[AdvisorRule]) -> Advice:
    day = datetime.datetime.fromtimestamp(snapshot.at_ms / 1000, datetime.UTC).date()
    moving = {f"topic {topic.name}": topic for topic in snapshot.topics if topic.moves}
    found = [
        build_finding(rule, _while_moving(case, moving.get(case.subject)))
        for rule in rules
        if rule.name not in policy.off
        for case in rule.judge(snapshot, policy.limits_of(rule))
    ]
    found.sort(key=lambda one: SEVERITIES.index(one.severity))
    findings, waived = policy.waive(found, day)
    return Advice(
        snapshot.cluster,
        snapshot.cluster_id,
        snapshot.at_ms,
        findings,
        waived,
        (*snapshot.unseen, *_unjudged(snapshot, policy, rules)),
        profiles=build_profiles(snapshot),
        remarks=tuple(policy.remarks(found, day)),
        places=record_positions(snapshot.groups),
    )


def _while_moving(found: RuleCase, topic: TopicSnapshot | None) -> RuleCase:
    """Notes a running reassignment and drops the safe fix, which is safe only after the move."""
    if topic is None:
        return found
    told = join_names([_move(tp) for tp in topic.partitions if tp.moves], STUCK_GROUPS_NAMED_MAX)
    return replace(found, evidence=f"{found.evidence}; on the move now: partition {told}", safe=None)


def _move(tp: PartitionSnapshot) -> str:
    words = [
        f"{verb} {', '.join(map(str, nodes))}"
        for verb, nodes in (("gets", tp.adding), ("gives up", tp.removing))
        if nodes
    ]
    return f"{tp.number} ({' and '.join(words)})"


def _unjudged(snapshot: ClusterSnapshot, policy: AdvisorPolicy, rules: Sequence[AdvisorRule]) -> Iterator[BlindSpot]:
    """Groups with too little time between two readings, or only one, to tell whether they advance."""
    rule = next((rule for rule in rules if rule.name == GROUP_STUCK_RULE and rule.name not in policy.off), None)
    if rule is None:
        return
    least_s = policy.limits_of(rule)["seconds"]
    near = [
        group.name
        for group in snapshot.groups
        if group.live and any(_too_near(position, least_s) for position in group.places)
    ]
    if near:
        why = f"it was looked at once, or twice less than {least_s:g} s apart"
        what = f"whether {count_phrase(len(near), 'group')} with members and records to read read on"
        yield BlindSpot(
            f"{what}: {join_names(near, STUCK_GROUPS_NAMED_MAX)}", why, "leave --apart as it is, or make it longer"
        )


def _too_near(position: GroupPosition, least_s: float) -> bool:
    return (
        bool(position.lag)
        and position.waits is not False
        and (position.before is None or position.before.apart_s < least_s)
    )


@dataclass(frozen=True, slots=True)
class AdviceScope:
    """What a run checks: all rules but `off`, and the topics that `admits` accepts."""

    off: frozenset[str] = frozenset()
    admits: Callable[[str], bool] = lambda _: True

    def at(self, finding: Finding) -> bool:
        """Whether a rerun would report this finding again.

        Unknown for a group finding without a topic if only some topics are checked. Kafka's own topics always are.
        """
        kind, _, name = finding.subject.partition(" ")
        topic = name.rpartition(" on ")[2] if kind == "group" else name
        named = kind in ("topic", "group") and not topic.startswith("__")
        return finding.rule not in self.off and (not named or self.admits(topic))


def compare_advices(before: Advice, now: Advice, scope: AdviceScope | None = None) -> AdviceDifference:
    """Compares two advices. Waived findings and those not checked this time are neither new nor gone."""
    scope = scope or AdviceScope()
    earlier = {one.key: one for one in (*before.findings, *(row.finding for row in before.waived))}
    later = {one.key for one in (*now.findings, *(row.finding for row in now.waived))}
    return AdviceDifference(
        before.at_ms,
        tuple(one for one in now.findings if one.key not in earlier),
        tuple(one for key, one in earlier.items() if key not in later and scope.at(one)),
        len(earlier.keys() & later),
        bool(now.unseen),
        sum(key not in later and not scope.at(one) for key, one in earlier.items()),
    )


def record_positions(groups: Iterable[ConsumerGroupSnapshot]) -> tuple[RecordedPosition, ...]:
    return tuple(
        RecordedPosition(group.name, position.topic, position.partition, position.offset, position.log_end)
        for group in groups
        for position in group.places
    )


def add_earlier_positions(snapshot: ClusterSnapshot, places: Iterable[RecordedPosition], at_ms: int) -> ClusterSnapshot:
    """Adds the earlier position to each position that both readings have."""
    apart_s = (snapshot.at_ms - at_ms) / 1000
    if apart_s <= 0:
        return snapshot
    known = {(position.group, position.topic, position.partition): position for position in places}

    def beside(group: str, position: GroupPosition) -> GroupPosition:
        earlier = known.get((group, position.topic, position.partition))
        if earlier is None:
            return position
        return replace(position, before=EarlierPosition(earlier.offset, earlier.log_end, apart_s))

    groups = (
        replace(one, places=tuple(beside(one.name, position) for position in one.places)) for one in snapshot.groups
    )
    return replace(snapshot, groups=tuple(groups))


def as_values(advice: Advice, policy: AdvisorPolicy) -> dict[str, Any]:
    """JSON values, which `from_values` reads."""
    code = policy.exit_code(advice.findings, advice.unseen)
    return {"form": ADVICE_FORM_VERSION, **_ADVICE.dump_python(advice, mode="json"), "exit_code": code}


def difference_as_values(found: AdviceDifference) -> dict[str, Any]:
    values: dict[str, Any] = _DIFFERENCE.dump_python(found, mode="json")
    return values


def from_values(values: Any, name: str) -> Advice:
    """Reads an advice from `as_values`. Raises ConfigError for anything else."""
    try:
        if values["form"] != ADVICE_FORM_VERSION:
            raise ConfigError("advisor.other-version", path=name)
        return _ADVICE.validate_python(values)
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError("advisor.not-advice", path=name, cause=repr(error)) from error


# New replicas of a topic's partitions, by the partition's number.
ReplicaAssignment = Mapping[int, Sequence[int]]


def plan_replicas(snapshot: ClusterSnapshot, copies: int) -> Mapping[str, ReplicaAssignment]:
    """Plans new replicas, by topic, for partitions with fewer than `copies`, or with all in one of several racks.

    Replicas that hold records stay first. The order is fixed, so two rules give one topic the same replicas. The
    cluster needs at least `copies` brokers.
    """
    if copies not in snapshot.placed:
        snapshot.placed[copies] = _placed(snapshot, copies)
    return snapshot.placed[copies]


def _placed(snapshot: ClusterSnapshot, copies: int) -> dict[str, ReplicaAssignment]:
    load = Counter(node for topic in snapshot.topics for tp in topic.partitions for node in (*tp.replicas, *tp.adding))
    found: dict[str, ReplicaAssignment] = {}
    for topic in snapshot.topics:
        moved: dict[int, list[int]] = {}
        for tp in topic.partitions if not topic.moves else ():
            nodes = _nodes(snapshot.racks, tp, copies, load)
            if nodes != list(tp.replicas):
                moved[tp.number] = nodes
                load.update(node for node in nodes if node not in tp.replicas)
        found[topic.name] = moved
    return found


def _nodes(racks: Mapping[int, str], tp: PartitionSnapshot, copies: int, load: Counter[int]) -> list[int]:
    alone = is_in_one_rack(racks, tp) and len(set(racks.values())) > 1
    # Kafka's tool accepts no unreachable broker; without a reachable replica there is nothing to copy from.
    there = [node for node in tp.replicas if node in racks]
    if not there or (len(tp.replicas) >= copies and not alone):
        return list(tp.replicas)
    wanted = max(copies, len(there), 2 if alone else 1)
    nodes = there[: wanted - 1] if alone else there
    while len(nodes) < wanted:
        used = Counter(racks[node] for node in nodes)
        free = (node for node in racks if node not in nodes)
        nodes.append(min(free, key=lambda node: (used[racks[node]], load[node], node)))
    return nodes


def is_in_one_rack(racks: Mapping[int, str], tp: PartitionSnapshot) -> bool:
    """Whether all of several replicas are in one rack."""
    return len(tp.replicas) > 1 and len({racks.get(node, "") for node in tp.replicas}) == 1


CLIENT_CONFIG_FILE = "client.properties"
REASSIGNMENT_HINT = (
    "its partitions are given other replicas right now: look again once `kafka-reassign-partitions.sh --list` is empty"
)
WHEN_IN_SYNC_PHRASE = "once each of its partitions has a leader and all replicas in sync"


class ToolTarget(Protocol):
    @property
    def bootstrap(self) -> tuple[str, ...]: ...

    @property
    def secured(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    bootstrap: tuple[str, ...]
    secured: bool


def build_bootstrap_options(target: ToolTarget) -> str:
    where = f"--bootstrap-server {shlex.quote(','.join(target.bootstrap))}"
    return f"{where} --command-config {CLIENT_CONFIG_FILE}" if target.secured else where


def build_set_topic_command(target: ToolTarget, topic: str, settings: Mapping[str, str]) -> str:
    return _configs(target, f"--topic {shlex.quote(topic)}", f"--add-config {_pairs(settings)}")


def build_min_isr_command(target: ToolTarget, topic: TopicSnapshot, minimum: int) -> tuple[tuple[str, ...], str]:
    """The command that sets min.insync.replicas; while a replica is away, as a later step by hand."""
    line = build_set_topic_command(target, topic.name, {MIN_ISR_CONFIG: str(minimum)})
    return ((line,), "") if topic.settled else ((), f"{WHEN_IN_SYNC_PHRASE}: {line}")


def build_unset_topic_command(target: ToolTarget, topic: str, settings: Iterable[str]) -> str:
    return _configs(target, f"--topic {shlex.quote(topic)}", f"--delete-config {','.join(settings)}")


def build_set_brokers_command(target: ToolTarget, settings: Mapping[str, str]) -> str:
    """Sets all brokers at once; only for settings that running brokers accept."""
    return _configs(target, "--entity-type brokers --entity-default", f"--add-config {_pairs(settings)}")


def build_acl_command(target: ToolTarget, acl: Acl, *, gives: bool) -> str:
    """Adds an ACL, or removes it."""
    allows = "allow" if acl.permission == AclPermission.ALLOW else "deny"
    kind = ResourceType(acl.resource).name.lower().replace("_", "-")
    pattern = PatternType(acl.pattern).name.lower()
    return (
        f"kafka-acls.sh {build_bootstrap_options(target)} {'--add' if gives else '--remove --force'} --{kind} "
        f"{shlex.quote(acl.name)}"
        f" --resource-pattern-type {pattern} --{allows}-principal {shlex.quote(acl.principal)}"
        f" --{allows}-host {shlex.quote(acl.host)} --operation {_pascal(AclOperation(acl.operation).name)}"
    )


def _pascal(word: str) -> str:
    return "".join(part.capitalize() for part in word.split("_"))


def describe_server_properties(settings: Mapping[str, str]) -> str:
    """For settings that a broker reads at its start."""
    lines = ", ".join(f"`{name}={value}`" for name, value in settings.items())
    return f"put {lines} into server.properties of every broker, and restart one after the other"


def build_election_command(target: ToolTarget, topic: str, partitions: Sequence[int]) -> str:
    named = [{"topic": topic, "partition": number} for number in partitions]
    return (
        f"kafka-leader-election.sh {_admin(target)} --election-type preferred"
        f" --path-to-json-file <(echo {_json({'partitions': named})})"
    )


def build_reassign_command(target: ToolTarget, topic: str, replicas: Mapping[int, Sequence[int]]) -> str:
    """Assigns these replicas, beside running reassignments. This copies records, so no fix runs the command."""
    named = [{"topic": topic, "partition": number, "replicas": list(nodes)} for number, nodes in replicas.items()]
    text = _json({"version": 1, "partitions": named})
    how = "--execute --additional"
    return (
        f"kafka-reassign-partitions.sh {build_bootstrap_options(target)} --reassignment-json-file <(echo {text}) {how}"
    )


def build_describe_group_command(target: ToolTarget, group: str) -> str:
    return f"kafka-consumer-groups.sh {build_bootstrap_options(target)} --describe --group {shlex.quote(group)}"


def build_more_replicas_command(
    snapshot: ClusterSnapshot, topic: TopicSnapshot, copies: int
) -> tuple[tuple[str, ...], str]:
    """The command that adds replicas, or what must be done first."""
    if topic.moves:
        return (), REASSIGNMENT_HINT
    if len(snapshot.brokers) < copies:
        return (
            (),
            f"start {count_phrase(copies - len(snapshot.brokers), 'more broker')}, then reassign the topic's"
            f" partitions",
        )
    moved = plan_replicas(snapshot, copies)[topic.name]
    if not moved:
        return (), "bring the brokers of its partitions back first: there is nothing to copy from"
    return (build_reassign_command(snapshot, topic.name, moved),), ""


def _configs(target: ToolTarget, entity: str, change: str) -> str:
    return f"kafka-configs.sh {build_bootstrap_options(target)} --alter {entity} {change}"


def _admin(target: ToolTarget) -> str:
    # kafka-leader-election.sh has another name for the same option.
    return build_bootstrap_options(target).replace("--command-config", "--admin.config")


def _pairs(settings: Mapping[str, str]) -> str:
    """Formats settings for kafka-configs.sh, which splits at commas outside brackets."""
    told = {name: f"[{value}]" if "," in value else value for name, value in settings.items()}
    return shlex.quote(",".join(f"{name}={value}" for name, value in told.items()))


def _json(value: object) -> str:
    return shlex.quote(json.dumps(value, separators=(",", ":")))


FINDINGS_PER_RULE_MAX = 10


def describe_advice(advice: Advice, *, everything: bool = False) -> Iterator[str]:
    """The verdict, then each rule's findings by severity: ten of a rule, or all with `everything`."""
    yield describe_verdict(advice)
    most = len(advice.findings) if everything else FINDINGS_PER_RULE_MAX
    for kind in dict.fromkeys((one.rule, one.severity) for one in advice.findings):
        yield ""
        yield from _of_rule([one for one in advice.findings if (one.rule, one.severity) == kind], most)
    yield from _beside(advice, most)


def describe_verdict(advice: Advice) -> str:
    return (
        f"{advice.cluster}: "
        f"{describe_counts([one.severity for one in advice.findings], len(advice.waived), len(advice.unseen))}"
    )


def describe_counts(severities: Sequence[Severity], waived: int, unseen: int) -> str:
    counted = ", ".join(f"{count} {severity}" for severity in SEVERITIES if (count := severities.count(severity)))
    found = f"{count_phrase(len(severities), 'finding')}: {counted}" if severities else "nothing was found"
    passed = f"; {waived} waived" if waived else ""
    return found + passed + (f"; {count_phrase(unseen, 'thing')} could not be seen" if unseen else "")


def _of_rule(findings: list[Finding], most: int) -> Iterator[str]:
    first = findings[0]
    yield f"{first.severity.upper()} {first.rule}: {first.says}"
    yield f"  at risk: {first.risk}"
    yield f"  when: {first.event}"
    if first.story:
        yield f"  to see it happen: twinshore simulate story {first.story}"
    for one in findings[:most]:
        yield f"  {one.subject}: {one.evidence}"
        for line in one.commands:
            yield f"      {line}"
        if one.by_hand:
            yield f"      by hand: {one.by_hand}"
        if one.safe:
            yield "      --fix does it"
    if len(findings) > most:
        yield f"  and {len(findings) - most:,} more: --all shows them, --json has them"


def _beside(advice: Advice, most: int) -> Iterator[str]:
    if advice.profiles:
        yield ""
        yield "what topics promise (CP for producers with acks=all, AP with acks=1):"
        for kind in ReliabilityKind:
            topics = [profile.topic for profile in advice.profiles if profile.kind is kind]
            if topics:
                yield f"  {kind}: {join_names(topics, most)}"
        odd = [profile for profile in advice.profiles if profile.kind is ReliabilityKind.NEITHER]
        yield from (f"    {profile.topic}: {'; '.join(profile.differs)}" for profile in odd[:most])
    yield from describe_unjudged(advice.waived, advice.unseen[:most])
    if len(advice.unseen) > most:
        yield f"and {len(advice.unseen) - most:,} more things could not be seen"
    for spot in advice.untold:
        yield f"unknown: {spot.what}: {spot.why} ({spot.hint})"
    yield from advice.remarks


def describe_unjudged(waived: Iterable[WaivedFinding[Any]], unseen: Iterable[BlindSpot]) -> Iterator[str]:
    yield from (f"waived until {row.waiver.until}: {row}: {row.waiver.reason}" for row in waived)
    for spot in unseen:
        hint = f" (try: {spot.hint})" if spot.hint else ""
        yield f"could not see {spot.what}: {spot.why}{hint}"


def describe_difference(found: AdviceDifference, now_ms: int) -> Iterable[str]:
    hours = (now_ms - found.since_ms) / 3_600_000
    other = f"; {found.not_checked} are of rules or topics that were not checked now" if found.not_checked else ""
    yield f"since {hours:.1f} h ago: {len(found.new)} new, {len(found.gone)} gone, {found.stays} as before{other}"
    yield from (f"  new: {one.rule}, {one.subject}: {one.evidence}" for one in found.new)
    unsure = " (or could not be seen this time)" if found.unsure else ""
    yield from (f"  gone{unsure}: {one.rule}, {one.subject}: {one.evidence}" for one in found.gone)


FINDINGS_SHOWN_MAX = 20


def render_advice_page(advice: Advice, changed: AdviceDifference | None = None) -> str:
    when = datetime.datetime.fromtimestamp(advice.at_ms / 1000, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    body = "\n".join(_body(advice, changed))
    title = f"Advice on {advice.cluster}"
    first = f"<p>{escape(describe_verdict(advice))}.<br>{when}, cluster id {escape(advice.cluster_id)}</p>"
    return html_page(title, f"<h1>{escape(title)}</h1>\n{first}\n{body}", "advice.css")


def _body(advice: Advice, changed: AdviceDifference | None) -> Iterator[str]:
    for severity in SEVERITIES:
        rules = dict.fromkeys(one.rule for one in advice.findings if one.severity is severity)
        for rule in rules:
            findings = [one for one in advice.findings if one.rule == rule and one.severity is severity]
            first = findings[0]
            risk = f"<b>At risk:</b> {escape(first.risk)}.<br><b>When:</b> {escape(first.event)}.{_see(first)}"
            yield render_rule(findings, risk, _finding)
    if changed is not None:
        yield render_list(
            "New since the earlier look", (f"{one.rule}, {one.subject}: {one.evidence}" for one in changed.new)
        )
        gone = "Gone since then" + (", or not seen this time" if changed.unsure else "")
        yield render_list(gone, map(_line, changed.gone))
    yield render_unjudged(advice.waived, advice.unseen)
    yield render_blind_spots("Unknown to everybody", advice.untold)
    yield render_list("Of the policy", advice.remarks)
    yield _profiles(advice.profiles)
    yield _stories({one.story for one in advice.findings})


def _stories(names: Collection[str]) -> str:
    """The stories that findings link to, so the page needs no other."""
    told = [_story(story) for story in STORIES if story.name in names]
    return f"<h2>How it happens</h2>\n{''.join(told)}" if told else ""


def _story(story: Story) -> str:
    steps = play_story(story)
    lines = "".join(
        f"<li>{'<b>Fault:</b> ' if step.move.is_fault else ''}{escape(describe_step(story.config, step))}\n"
        f"<pre>{escape(chr(10).join(draw_state(step.after)))}</pre></li>\n"
        for step in steps
    )
    return (
        f'<section id="story-{story.name}">\n<h3>{escape(story.title)}</h3>\n'
        f"<p>With {escape(describe_model_config(story.config))}.</p>\n<ol>{lines}</ol>\n<p>So it ends: "
        f"{escape(describe_ending(steps))}."
        f"<br>{escape(story.moral)}</p>\n<p>Drawn, and stepped through by keyboard:</p>\n"
        f"<pre>twinshore simulate story {story.name} --html {story.name}.html</pre>\n</section>\n"
    )


def render_rule(findings: Sequence[F], intro: str, render: Callable[[F], str]) -> str:
    """The article of one rule and severity. `intro`: HTML about the rule; `render`: the HTML of a finding."""
    first = findings[0]
    some, more = findings[:FINDINGS_SHOWN_MAX], findings[FINDINGS_SHOWN_MAX:]
    rest = f"<details><summary>{len(more):,} more</summary>{''.join(map(render, more))}</details>" if more else ""
    return (
        f'<article class="{first.severity}" id="{escape(first.rule)}-{first.severity}">\n'
        f'<h2><span class="severity">{first.severity}</span> {escape(first.says)}</h2>\n'
        f"<p>{intro}</p>\n{''.join(map(render, some))}{rest}</article>"
    )


def _see(one: Finding) -> str:
    return f'<br><a href="#story-{escape(one.story)}">See it happen, step by step</a>' if one.story else ""


def _finding(one: Finding) -> str:
    lines = "".join(f"<pre>{escape(line)}</pre>\n" for line in one.commands)
    by_hand = f"<p>By hand: {escape(one.by_hand)}.</p>\n" if one.by_hand else ""
    safe = "<p><code>--fix</code> does it.</p>\n" if one.safe else ""
    return f"<p><b>{escape(one.subject)}</b>: {escape(one.evidence)}</p>\n{lines}{by_hand}{safe}"


def _line(one: Finding) -> str:
    return f"{one.rule}, {one.subject}: {one.evidence}"


def render_list(title: str, lines: Iterable[str]) -> str:
    """A titled list; empty without lines."""
    rows = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<h2>{escape(title)}</h2>\n<ul>{rows}</ul>" if rows else ""


def render_blind_spots(title: str, spots: Iterable[BlindSpot]) -> str:
    return render_list(title, (append_hint(f"{spot.what}: {spot.why}", spot.hint) for spot in spots))


def render_unjudged(waived: Iterable[WaivedFinding[Any]], unseen: Iterable[BlindSpot]) -> str:
    lines = (f"{row}: {row.finding.evidence} (until {row.waiver.until}: {row.waiver.reason})" for row in waived)
    return f"{render_list('Waived', lines)}\n{render_blind_spots('Could not be seen', unseen)}"


def _profiles(profiles: tuple[ReliabilityProfile, ...]) -> str:
    rows = "".join(
        f"<tr><td>{escape(profile.topic)}</td><td>{profile.kind}</td><td>{profile.replicas}</td>"
        f"<td>{'' if profile.min_insync is None else profile.min_insync}</td>"
        f"<td>{escape('; '.join(profile.differs))}</td></tr>\n"
        for kind in (ReliabilityKind.NEITHER, ReliabilityKind.UNKNOWN, ReliabilityKind.AP, ReliabilityKind.CP)
        for profile in profiles
        if profile.kind is kind
    )
    if not rows:
        return ""
    head = "<tr><th>topic</th><th>promise</th><th>replicas</th><th>min.insync</th><th>what differs</th></tr>"
    return (
        "<h2>What topics promise</h2>\n<p>CP for producers with acks=all, AP for those with acks=1.</p>\n"
        f"<table>{head}\n{rows}</table>"
    )
