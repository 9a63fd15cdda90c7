"""Moves committed offsets: reads both sides, checks again right before the commit, and writes an audit row each."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from twinshore.config.errors import KafkaError
from twinshore.config.frozen import COMMIT_MARK
from twinshore.config.model import Link
from twinshore.config.settings import Settings
from twinshore.groups.cluster_groups import OffsetClient
from twinshore.groups.core.goals import GroupOnBothSides, OffsetGoal, build_goals
from twinshore.groups.sync import GroupSync
from twinshore.groups.view import view_groups
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.consumer_groups import group_by_coordinator
from twinshore.kafka.protocol.error_codes import UNKNOWN_ERROR, error_kind
from twinshore.kafka.protocol.offsets import CommittedOffset, TopicPartitionTuple
from twinshore.replication.links import effective_links, load_all_links
from twinshore.state.core.values import AuditRow
from twinshore.state.log import is_refused_outcome, refused_outcome
from twinshore.state.store import Store

ATTEMPTS_MAX = 5
RETRY_DELAY_S = 0.5
DONE, NOT_DONE = "done", "not done"
STATES_WITHOUT_MEMBERS = ("Empty", "Dead", "none")


# Each offset to commit, with the one that is there now.
WantedOffsets = dict[TopicPartitionTuple, tuple[int | None, CommittedOffset]]
# Groups by name, with the goals of each.
GoalsByGroup = Mapping[str, Sequence[OffsetGoal]]


@dataclass(frozen=True, slots=True)
class OffsetStep:
    link: str
    cluster: str
    group: str
    topic: str
    partition: int
    before: int | None
    after: int
    outcome: str

    @property
    def refused(self) -> bool:
        """Whether the commit was requested and, as far as is known, not done."""
        return is_refused_outcome(self.outcome)

    def sentence(self, *, done: bool) -> str:
        before = "none" if self.before is None else self.before
        move = f"{self.topic}-{self.partition} on {self.cluster}: {before} -> {self.after}"
        return f"{self.link}: group {self.group}: {move} ({self.outcome if done else NOT_DONE})"

    def row(self, now_ms: int, by: str) -> AuditRow:
        subject = f"{self.group} {self.topic}-{self.partition} on {self.cluster}"
        before = "" if self.before is None else str(self.before)
        what = (now_ms, self.link, "group", subject, before, str(self.after), self.outcome, by)
        return AuditRow(*what, self.topic, self.group)


def commit_offsets(
    store: Store, writer: OffsetClient, link: str, wanted: Mapping[str, WantedOffsets], *, by: str, lower: bool = False
) -> dict[str, list[OffsetStep]]:
    """Commits in one request per coordinator, and audits each outcome. An offset that has moved on since it was read is
    not set back; if `lower` was requested, that counts as refused.
    """
    outcomes: dict[str, dict[TopicPartitionTuple, str]] = {}
    left = {name: wishes for name, wishes in wanted.items() if wishes}
    try:
        for number in range(ATTEMPTS_MAX if left else 0):
            if number:
                time.sleep(RETRY_DELAY_S)
            outcomes |= _commit_once(writer, left, lower=lower)
            left = {name: wishes for name, wishes in left.items() if name not in outcomes}
            if not left:
                break
        said = refused_outcome("its coordinator does not answer")
    except KafkaError as error:
        said = refused_outcome(error.message)
    outcomes |= {name: dict.fromkeys(wishes, said) for name, wishes in left.items()}
    steps = {name: build_offset_steps(link, writer.name, name, wanted[name], some) for name, some in outcomes.items()}
    now_ms = wall_ms()
    store.audit.add([step.row(now_ms, by) for some in steps.values() for step in some])
    return steps


def _commit_once(
    writer: OffsetClient, wanted: Mapping[str, WantedOffsets], *, lower: bool
) -> dict[str, dict[TopicPartitionTuple, str]]:
    """Returns the outcomes by group; groups without an answer are left out."""
    nodes, errors = writer.located(list(wanted))
    outcomes = {name: dict.fromkeys(wanted[name], refused_outcome(error.message)) for name, error in errors.items()}
    offsets = writer.places(group_by_coordinator(nodes), {})[0]
    commits: dict[int, dict[str, dict[TopicPartitionTuple, CommittedOffset]]] = {}
    newer: dict[str, dict[TopicPartitionTuple, str]] = {}
    for name, node in nodes.items():
        if name not in offsets or offsets[name].error:
            continue
        newer[name] = find_newer_offsets(wanted[name], offsets[name].places, lower=lower)
        if goals := {where: place for where, (_, place) in wanted[name].items() if where not in newer[name]}:
            commits.setdefault(node, {})[name] = goals
        else:
            outcomes[name] = newer[name]
    for name, codes in (writer.commit(commits) if commits else {}).items():
        done = {where: codes.get(where, UNKNOWN_ERROR) for where in wanted[name]}
        outcomes[name] = {where: _outcome(code) for where, code in done.items()} | newer[name]
    return outcomes


def find_newer_offsets(
    wishes: WantedOffsets, places: Mapping[TopicPartitionTuple, CommittedOffset], *, lower: bool
) -> dict[TopicPartitionTuple, str]:
    """Returns the outcome of each offset that is not committed because the group has moved on."""
    found: dict[TopicPartitionTuple, str] = {}
    for where, (before, goal) in wishes.items():
        now = places[where].offset if where in places else None
        # At the goal a response may have been lost: commit again.
        if now != before and now is not None and now > goal.offset:
            stands = f"it stands at {now} by now"
            found[where] = refused_outcome(stands) if lower else f"{NOT_DONE}: {stands}"
    return found


def build_offset_steps(
    link: str, cluster: str, group: str, wishes: WantedOffsets, outcomes: Mapping[TopicPartitionTuple, str]
) -> list[OffsetStep]:
    return [
        OffsetStep(link, cluster, group, *where, has, to.offset, outcomes[where]) for where, (has, to) in wishes.items()
    ]


def _outcome(code: int) -> str:
    return refused_outcome(error_kind(code).sentence) if code else DONE


def links_between(settings: Settings, store: Store, one: str, other: str) -> list[Link]:
    """Returns the links in both directions, including those that a switch has just added."""
    links = [effective.link for effective in effective_links(load_all_links(settings, store), store).values()]
    return [link for link in links if {link.source, link.target} == {one, other}]


def inspect_group(links: Iterable[Link], settings: Settings, store: Store, group: str, new: str) -> GroupOnBothSides:
    return inspect_groups(links, settings, store, re.escape(group), new, stable=True).get(group, GroupOnBothSides())


def inspect_groups(
    links: Iterable[Link], settings: Settings, store: Store, pattern: str, new: str, *, stable: bool
) -> dict[str, GroupOnBothSides]:
    """Returns all groups whose whole name matches, with goals on `new`. Read-only. `stable`: as for `view_groups`."""
    found: dict[str, GroupOnBothSides] = {}
    for link in links:
        back = link.source == new
        for view in view_groups(link, settings, store, pattern, stable=stable, back=back):
            before = found.get(view.group, GroupOnBothSides())
            if view.why or view.said_s_ago is not None:
                found[view.group] = replace(before, unheard=view.why or f"{link.source} does not answer")
                continue
            states = (view.target_state, view.source_state) if back else (view.source_state, view.target_state)
            goals, lost = build_goals(link, view, back=back)
            found[view.group] = replace(
                before,
                goals=(*before.goals, *goals),
                old_live=before.old_live or states[0] not in STATES_WITHOUT_MEMBERS,
                new_live=before.new_live or states[1] not in STATES_WITHOUT_MEMBERS,
                lost=(*before.lost, *lost),
            )
    return found


def set_offsets(
    links: Iterable[Link],
    settings: Settings,
    store: Store,
    moves: GoalsByGroup,
    by: str,
    *,
    mark: bool = False,
    notes: bool = True,
    lower: bool = False,
) -> dict[str, list[OffsetStep]]:
    """Commits these offsets, one call per link. Returns audited steps by group. `mark`: the mirror moves them on twins
    from now on. `notes`: check first, and write no mark for groups whose consumers commit metadata. `lower`: as for
    `commit_offsets`.
    """
    steps: dict[str, list[OffsetStep]] = {}
    for link in links:
        ours = {name: [goal for goal in goals if goal.link == link.name] for name, goals in moves.items()}
        if not any(ours.values()):
            continue
        at_source = next(goal.back for goals in ours.values() for goal in goals)
        marks = mark and link.groups.marks and not at_source
        with closing(GroupSync(link, settings, store, retention_s=1.0)) as sync:
            if notes:
                sync.begin(time.monotonic())
            writer = sync.source_groups if at_source else sync.target_groups
            marked = {name for name in ours if marks and not sync.rules_for(name).notes}
            wanted = {n: build_wanted_offsets(goals, COMMIT_MARK if n in marked else "") for n, goals in ours.items()}
            for name, done in commit_offsets(store, writer, link.name, wanted, by=by, lower=lower).items():
                steps.setdefault(name, []).extend(done)
    return steps


def build_wanted_offsets(goals: Iterable[OffsetGoal], note: str = "") -> WantedOffsets:
    return {(goal.topic, goal.partition): (goal.has, CommittedOffset(goal.within, note)) for goal in goals}


def restore_offsets(
    links: Iterable[Link], settings: Settings, store: Store, moves: GoalsByGroup, by: str
) -> dict[str, list[OffsetStep]]:
    """Restores earlier offsets; those on twins follow the home again. Where the group had none, the current offset
    stays.
    """
    before = {name: [goal.undone() for goal in goals if goal.has != goal.to] for name, goals in moves.items()}
    return set_offsets(links, settings, store, before, by, mark=True)


def resume_sync(
    links: Iterable[Link], settings: Settings, store: Store, moves: GoalsByGroup, by: str
) -> dict[str, list[OffsetStep]]:
    """Marks offsets on twins that groups leave for their home, so that the mirror moves them."""
    left = {name: [goal.left_behind() for goal in goals if goal.back] for name, goals in moves.items()}
    return set_offsets(links, settings, store, left, by, mark=True, lower=True)
