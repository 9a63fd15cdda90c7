"""What the new home takes over: committed offsets, topic settings, and the proof that both homes hold the same.

Offsets are copied to the new home, set on twins to follow their home, or saved and restored. A coordinator drops the
offsets of a deleted topic some time after brokers have the new one, so an offset counts only once it has remained for a
while. The proof uses the same round as `twinshore prove`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple

from twinshore.config.errors import KafkaError, WireError
from twinshore.config.frozen import COMMIT_MARK
from twinshore.config.model import Link, TopicPartition
from twinshore.config.sentences import NAMED_MAX, count_phrase, join_names
from twinshore.config.settings import Settings
from twinshore.groups.core.commit_rules import GroupSyncStatus, output_patterns
from twinshore.groups.core.goals import OffsetGoal, build_goals
from twinshore.groups.offset_move import DONE, STATES_WITHOUT_MEMBERS, set_offsets
from twinshore.groups.view import GroupView, PartitionView, view_groups
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.consumer_groups import ConsumerGroups
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.protocol.offsets import CommittedOffset, GroupOffsets, TopicPartitionTuple
from twinshore.proof.jobs import run_bundle_in_process
from twinshore.proof.rounds import PartitionReport, ProofRounds
from twinshore.proof.service import proof_options
from twinshore.replication.core.planner import COMPACTED_POLICY, TWIN_SETTINGS
from twinshore.replication.sync.cluster_comparison import read_replication_factors
from twinshore.replication.sync.core import decisions
from twinshore.replication.sync.core.decisions import TopicSettings, dump_promotion_settings, restore_promotion_settings
from twinshore.state.store import Store
from twinshore.switch.core.steps import (
    StepDone,
    StepFailed,
    StepOutcome,
    StepPending,
    SwitchState,
    find_topics_left_by_force,
    find_topics_moved_for_group,
    parse_switch_state,
)
from twinshore.switch.core.takeover import InconsistentGroup, assess_group, topics_read_by_group

# What a coordinator answers where a group has members: UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS,
# STALE_MEMBER_EPOCH.
GROUP_BUSY_CODES = frozenset({22, 25, 27, 113})


def copy_group_offsets(
    link: Link, settings: Settings, store: Store, state: SwitchState, *, stable: bool
) -> StepDone | StepPending:
    """Copies the offsets of every admitted group, in the switch's topics only. A group that a group switch moved to the
    new home is skipped: its offsets on the old home are outdated. `stable`: as for `view_groups`.
    """
    left: list[str] = []
    wanted: dict[str, list[OffsetGoal]] = {}
    before, topics = _records(store), set(state.names())
    for view in view_groups(link, settings, store, stable=stable):
        if view.why or view.said_s_ago is not None:
            why = view.why or "its old home does not answer"
            return StepPending(f"the offsets of group {view.group} are not known: {why}")
        meant = topics - find_topics_moved_for_group(before, view.group, topics, link.target)
        view = replace(view, parts=tuple(partition for partition in view.parts if partition.topic in meant))
        goals = [goal for goal in build_goals(link, view, back=False)[0] if goal.moves]
        if goals and view.target_state not in STATES_WITHOUT_MEMBERS:
            left.append(view.group)
        elif view.parts:
            wanted[view.group] = goals
    steps = set_offsets([link], settings, store, wanted, state.by, notes=False, lower=True)
    if refused := [step.sentence(done=True) for some in steps.values() for step in some if step.refused]:
        return StepDone(state, f"set by hand what {state.new} refused: {'; '.join(refused[:NAMED_MAX])}")
    unchanged = f"; left unchanged, as they have members there: {join_names(left)}" if left else ""
    return StepDone(state, f"the offsets of {count_phrase(len(wanted), 'group')} copied{unchanged}")


def let_offsets_follow_home(
    link: Link,
    settings: Settings,
    store: Store,
    topics: Collection[str],
    by: str,
    ends: Mapping[TopicPartitionTuple, int],
) -> str:
    """Makes offsets that a forced switch left on twins follow their home. Returns a sentence.

    Left alone: groups with other offsets of their own there, whose consumers may read there; offsets ahead of the
    home's; offsets below `ends`, the end of what only the twin holds; groups with members there. A group with an
    unknown offset does not delay the others. Raises KafkaError if the home does not answer.
    """
    before = _records(store)
    left_there = find_topics_left_by_force(before, topics, link.target, link.source)
    wanted: dict[str, list[OffsetGoal]] = {}
    left: list[str] = []
    alone: list[str] = []
    behind: list[str] = []
    for view in view_groups(link, settings, store):
        meant = set(topics) - find_topics_moved_for_group(before, view.group, topics, link.target)
        ours = tuple(partition for partition in view.parts if partition.topic in meant)
        if not ours:
            continue
        if view.said_s_ago is not None:
            raise KafkaError(f"{link.source} does not answer", retriable=True)
        unread = [tp for tp in ours if (tp.target or 0) < ends.get((tp.topic, tp.partition), 0)]
        if any(_is_left(partition, left_there) for partition in unread):
            behind.append(view.group)
        goals = goals_to_follow_home(
            link, replace(view, parts=tuple(tp for tp in ours if tp not in unread)), left_there
        )
        if any(tp.state == GroupSyncStatus.OWN and tp.topic not in left_there for tp in ours):
            alone.append(view.group)
        if view.why or (goals and view.target_state not in STATES_WITHOUT_MEMBERS):
            left.append(view.group)
        elif goals:
            wanted[view.group] = goals
    steps = set_offsets([link], settings, store, wanted, by, mark=True, notes=False)
    followed = [name for name in wanted if all(step.outcome == DONE for step in steps[name])]
    left += [name for name in wanted if name not in followed]
    return _follow(link, followed, left, alone, behind)


def find_topics_with_own_offsets(link: Link, store: Store, topics: Collection[str]) -> frozenset[str]:
    return find_topics_left_by_force(_records(store), topics, link.target, link.source)


def _records(store: Store) -> list[SwitchState]:
    return [state for row in store.switches.all() if (state := parse_switch_state(row.switch_state))]


def goals_to_follow_home(link: Link, view: GroupView, left_there: Collection[str]) -> list[OffsetGoal]:
    """Returns where the group's own offsets go, so that the mirror treats them as the link's. A group that writes to
    topics of the link keeps its offsets until its output is replicated.
    """
    partitions = tuple(partition for partition in view.parts if _is_left(partition, left_there))
    goals = build_goals(link, replace(view, parts=partitions), back=False)[0]
    if output_patterns(link.groups.outputs, view.group):
        return [replace(goal, to=goal.has, short=0) for goal in goals if goal.has is not None]
    return goals


def _is_left(partition: PartitionView, left_there: Collection[str]) -> bool:
    return partition.state == GroupSyncStatus.OWN and partition.topic in left_there


def _follow(
    link: Link, followed: Sequence[str], left: Sequence[str], alone: Sequence[str], behind: Sequence[str]
) -> str:
    sentences = [f"group {join_names(followed)} follows {link.source} again"] if followed else []
    if alone:
        sentences.append(f"group {join_names(alone)} has offsets of its own on {link.target}, which are left unchanged")
    if behind:
        sentences.append(
            f"group {join_names(behind)} has not read all unreplicated records on {link.target}, and stays"
        )
    if by_hand := sorted({*left, *alone, *behind}):
        where = " where it should follow" if alone or behind else ""
        sentences.append(f"`twinshore groups move` for {join_names(by_hand)}{where}")
    return "; ".join(sentences)


OffsetsByGroup = Mapping[str, Mapping[TopicPartitionTuple, CommittedOffset]]


def read_group_offsets(
    cluster: KafkaCluster, topics: Collection[str]
) -> tuple[dict[str, dict[TopicPartitionTuple, CommittedOffset]], tuple[str, ...]]:
    """Returns each group's offsets in these topics, with the mark of a link's offsets, and the groups with members.
    Raises KafkaError if a coordinator does not answer: an unseen offset would be lost.
    """
    with closing(ConsumerGroups(cluster)) as groups:
        ours, told, away = groups.all_places()
    for error in away:
        raise error
    found = {name: _of(cluster, one, topics) for name, one in told.items()}
    found = {name: places for name, places in found.items() if places}
    return found, tuple(sorted(name for name in found if ours[name].live))


class SavedOffset(NamedTuple):
    """`was`: the offset in the deleted topic. `to`: the same in the new topic, within its records."""

    was: CommittedOffset
    to: CommittedOffset


def restore_group_offsets(
    cluster: KafkaCluster, places: Mapping[str, Mapping[TopicPartitionTuple, SavedOffset]]
) -> tuple[str, ...]:
    """Commits missing offsets. Returns the groups that still lack some. Groups with members commit on their own."""
    lacking: list[str] = []
    with closing(ConsumerGroups(cluster)) as groups:
        located = groups.located(sorted(places))
        for error in located.errors.values():
            raise error
        for name, wanted in places.items():
            node = located.nodes.get(name)
            told = groups.places({node: {name: list(wanted)}}, {})[0].get(name) if node is not None else None
            if node is None or told is None or told.error:
                lacking.append(name)
                continue
            there = told.places
            absent = {where: one.to for where, one in wanted.items() if needs_restore(one, there.get(where))}
            answers = groups.commit({node: {name: absent}}).get(name, {}) if absent else {}
            if absent and not GROUP_BUSY_CODES.issuperset(answers.values() or (0,)):
                lacking.append(name)
    return tuple(lacking)


def needs_restore(saved: SavedOffset, there: CommittedOffset | None) -> bool:
    """Returns whether to restore the saved offset.

    An offset found there is newer, with two exceptions. The link's offset: during the refill it gave every group
    without an offset the home's, which would skip records for a group with an offset of its own. And the old topic's
    offset, which may be in deleted records.
    """
    if there is None or (there.metadata == COMMIT_MARK and saved.to.metadata != COMMIT_MARK):
        return True
    return there.offset == saved.was.offset > saved.to.offset


def offsets_to_json(places: OffsetsByGroup) -> str:
    """Marks an offset of the link with an extra value."""
    rows = {
        name: [
            [*where, one.offset, *([1] if one.metadata == COMMIT_MARK else [])] for where, one in sorted(some.items())
        ]
        for name, some in sorted(places.items())
    }
    return json.dumps(rows, separators=(",", ":"))


def offsets_from_json(text: str) -> dict[str, dict[TopicPartitionTuple, CommittedOffset]]:
    """Raises WireError if the text is invalid."""
    try:
        raw = json.loads(text or "{}")
        return {
            str(name): {
                (str(topic), int(number)): CommittedOffset(int(at), COMMIT_MARK if any(rest) else "")
                for topic, number, at, *rest in some
            }
            for name, some in raw.items()
        }
    except (ValueError, TypeError, AttributeError) as error:
        raise WireError("the committed offsets of groups cannot be read from the switch's record") from error


def _of(
    cluster: KafkaCluster, one: GroupOffsets, topics: Collection[str]
) -> dict[TopicPartitionTuple, CommittedOffset]:
    failed = [f"{topic}-{number}" for topic, number in one.failed if topic in topics]
    if one.error or failed:
        raise KafkaError(f"{cluster.name}: where group {one.group} stands cannot be read", retriable=True)
    return {
        # A consumer's metadata belongs to the offset that it was committed with.
        where: CommittedOffset(place.offset, COMMIT_MARK if place.metadata == COMMIT_MARK else "")
        for where, place in one.places.items()
        if where[0] in topics
    }


def describe_inconsistent_groups(new: KafkaCluster, link: Link, topics: Collection[str]) -> Iterator[str]:
    """Yields a sentence per group; or why they are unknown, which blocks no switch."""
    try:
        for group in _writing(new, link, topics):
            yield group.sentence()
    except KafkaError as error:
        yield f"which groups may be torn is not known: {error.message}"


def _writing(new: KafkaCluster, link: Link, topics: Collection[str]) -> list[InconsistentGroup]:
    with closing(ConsumerGroups(new)) as groups:
        _, found, _ = groups.all_places()
    places = {name: {where: place.offset for where, place in one.places.items()} for name, one in found.items()}
    rules = link.groups.outputs
    read = frozenset[str]().union(*(topics_read_by_group(name, rules, topics, some) for name, some in places.items()))
    shown = new.metadata(sorted(read)).topics if read else {}
    every = [TopicPartition(topic, tp.partition) for topic in read & shown.keys() for tp in shown[topic].partitions]
    begins, ends = (new.list_offsets(every, kind) for kind in (OffsetKind.EARLIEST, OffsetKind.LOG_END))
    spans = {(partition.topic, partition.partition): (begins[partition], ends[partition]) for partition in every}
    known = (assess_group(name, rules, topics, places[name], spans) for name in sorted(places))
    return [group for group in known if group is not None]


def record_home_settings(old: KafkaCluster, state: SwitchState) -> SwitchState:
    found = old.admin.topic_settings(state.names())
    values = {}
    for topic, settings in found.items():
        known = {name: entry.value for name, entry in settings.items() if entry.value is not None}
        own = {name: value for name, value in known.items() if settings[name].own}
        values[topic] = dump_promotion_settings(TopicSettings(known, own))
    return replace(state, given=json.dumps(values, sort_keys=True))


def record_last_known_settings(store: Store, state: SwitchState) -> SwitchState:
    """Saves the settings that the mirror saw last, if the old home does not answer."""
    rows = store.link_states.of(state.link, decisions.SETTING_KIND)
    values = {row.subject: row.value for row in rows if row.subject in state.names()}
    return replace(state, given=json.dumps(values, sort_keys=True))


def apply_topic_settings(new: KafkaCluster, link: Link, state: SwitchState) -> StepOutcome:
    """Applies the old home's settings, and removes those that only a twin needs. If run late, later changes by users
    stay.
    """
    known: Mapping[str, str] = json.loads(state.given or "{}")
    held = read_replication_factors(new, list(state.names()))
    stays: list[str] = []
    for move in state.topics:
        if move.topic not in known:
            continue
        wanted: dict[str, str | None] = dict.fromkeys(TWIN_SETTINGS)
        wanted |= restore_promotion_settings(known[move.topic], link, held.get(move.topic, 1))
        now = new.admin.topic_settings([move.topic])[move.topic]
        own = {name: entry.value for name, entry in now.items() if entry.own}
        changes = {name: value for name, value in wanted.items() if own.get(name) != value}
        if state.late:
            since = sorted(name for name in changes if not _is_twins(name, own.get(name)))
            changes = {name: value for name, value in changes.items() if name not in since}
            stays += [f"{name} of {move.topic}" for name in since]
        if changes:
            new.admin.alter_topic_settings(move.topic, changes, topic_id=bytes.fromhex(move.new_id))
    unknown = sorted(set(state.names()) - known.keys())
    rest = f"; nothing is known of those of {join_names(unknown)}" if unknown else ""
    left = f"; not the twin's any more, and left as it is: {join_names(stays)}" if stays else ""
    return StepDone(state, f"the topics have their settings on {new.name}{rest}{left}")


def _is_twins(name: str, value: str | None) -> bool:
    return value == TWIN_SETTINGS.get(name) or (name, value) == ("cleanup.policy", COMPACTED_POLICY)


def prove_twins(link: Link, settings: Settings, store: Store, state: SwitchState, *, whole: bool) -> StepOutcome:
    """Continues from earlier proofs. `whole`: up to the points; else as far as both logs are now."""
    tasks = settings.proof.tasks
    options = replace(proof_options(settings.proof), digest=False).per_task(tasks)
    proving = ProofRounds(
        settings, store, run_bundle_in_process, options=options, tasks=tasks, mode=None, stopped=lambda: False
    )
    report = proving.round([link], list(state.names()), again=False)
    partitions = {(part.row.topic, part.row.partition): part for part in report.partitions}
    if differing := [f"{topic}-{number}" for (topic, number), part in partitions.items() if part.differs]:
        return StepFailed(f"source and target differ: {join_names(differing)}; `twinshore prove` shows where")
    records = count_phrase(sum(part.compared for part in report.partitions), "record")
    if not whole:
        return StepDone(state, f"proven but for the tails; {records} compared now")
    points = {(move.topic, number): point for move in state.topics for number, point in enumerate(move.points)}
    proven = {where: _through(part) for where, part in partitions.items()}
    lacking = [f"{topic}-{number}" for (topic, number), at in points.items() if proven.get((topic, number), 0) < at]
    if lacking:
        return StepPending(f"not proven through its end yet: {join_names(lacking)}")
    return StepDone(state, f"the tails are proven; {records} compared")


def _through(report: PartitionReport) -> int:
    return max(report.row.to_offset, report.row.source_end if not report.unknown else 0)
