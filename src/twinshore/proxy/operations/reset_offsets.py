"""Resets a group's offsets while its members run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final

from twinshore.config.errors import ConfigError, RefusedError, TwinshoreError
from twinshore.config.model import Plan
from twinshore.config.sections.proxy import SECTION
from twinshore.config.sentences import count_phrase, format_time, join_names
from twinshore.config.settings import Settings
from twinshore.kafka.cluster import KafkaCluster
from twinshore.proxy.core.offset_reset import (
    ResetTarget,
    ResetTargetKind,
    compute_goals,
    describe_partition,
    parse_target,
    parse_topics,
    resume_goals,
    reverse_goals,
)
from twinshore.proxy.offset_reset_run import (
    GroupPositions,
    OffsetReset,
    is_reset_under_way,
    is_reset_unfinished,
    read_group_positions,
    reset_running,
)
from twinshore.proxy.operations.breakers import list_serving_proxies
from twinshore.state.core.proxy_values import ResetGoal, ResetRow
from twinshore.state.store import Store
from twinshore.state.tables import GROUP_LENGTH

CLUSTER_TIMEOUT_S: Final = 5.0
GATHER_TIMEOUT_S: Final = 10.0
NAMED_MAX: Final = 5
PARTITIONS_SHOWN_MAX: Final = 1000
UNFINISHED_HINT: Final = "finish it with --resume, or restore the earlier offsets with --undo"


class UnfinishedResetAction(StrEnum):
    RESUME = "resume"
    UNDO = "undo"


@dataclass(frozen=True, slots=True)
class ResetOffsets:
    """A requested reset.

    `topics`: with partitions, None for all; empty: all with a committed offset. `target`: None to only look, or with an
    `unfinished_action`. `gather_s`: how long to wait for members, so that they return together.
    """

    group: str
    topics: Mapping[str, frozenset[int] | None]
    target: ResetTarget | None = None
    unfinished_action: UnfinishedResetAction | None = None
    gather_s: float = GATHER_TIMEOUT_S


def parse_reset_request(
    group: str,
    topics: Sequence[str],
    *,
    earliest: bool = False,
    latest: bool = False,
    offset: int | None = None,
    time: str = "",
    shift: int | None = None,
    resume: bool = False,
    undo: bool = False,
    gather_s: float = GATHER_TIMEOUT_S,
) -> ResetOffsets:
    """Parse the options. ConfigError if they contradict."""
    target = parse_target(
        earliest=earliest, latest=latest, offset=offset, time=time, shift=shift, unfinished=resume + undo
    )
    if (resume or undo) and topics:
        raise ConfigError("proxy.reset-with-topics")
    if not group or len(group) > GROUP_LENGTH:
        raise ConfigError("proxy.group-name-invalid", max=GROUP_LENGTH)
    taking = UnfinishedResetAction.RESUME if resume else UnfinishedResetAction.UNDO if undo else None
    return ResetOffsets(group, parse_topics(topics), target, taking, gather_s)


class OffsetResetStage(StrEnum):
    """The stages, in order."""

    HOLD = "hold"
    GATHER = "gather"
    SET = "set"
    REJOIN = "go"


_WORDS: Final = {
    OffsetResetStage.HOLD: ("have group {group} held by {count}", "group {group} is held by {count}"),
    OffsetResetStage.GATHER: ("have members commit and wait", "{count} of {members} have committed, and wait"),
    OffsetResetStage.SET: (
        "have {members} leave it, and set {places}",
        "it was left by {members}, and {places} set{came}",
    ),
    OffsetResetStage.REJOIN: ("let members join anew", "members join anew; {count} of {members} had come by then"),
}


@dataclass(frozen=True, slots=True)
class OffsetResetStep:
    """A stage. `counts`: the numbers of the sentence."""

    stage: OffsetResetStage
    group: str
    counts: Mapping[str, str]

    def sentence(self, *, done: bool) -> str:
        return _WORDS[self.stage][done].format(group=self.group, **self.counts)


@dataclass(frozen=True, slots=True)
class OffsetResetPlan(Plan[OffsetResetStep]):
    """A planned reset. `known`: the earlier reset's run. `term`: how often groups had moved."""

    home: str = ""
    term: int = 0
    goals: tuple[ResetGoal, ...] = ()
    known: str = ""


def plan(request: ResetOffsets, settings: Settings, store: Store) -> OffsetResetPlan:
    """Plan a reset. ConfigError if there is no such group, topic or partition."""
    before = next((row for row in store.proxy_resets.all()[1] if row.group == request.group), None)
    if before is not None and is_reset_under_way(before) and _changes(request):
        raise reset_running(before)
    if request.unfinished_action is not None and not is_reset_unfinished(before):
        raise ConfigError("proxy.no-unfinished-reset", group=request.group)
    with ExitStack() as stack:
        clusters = _clusters(settings, stack)
        since_ms = (
            request.target.number if request.target is not None and request.target.way is ResetTargetKind.TIME else None
        )
        topics = request.topics if request.unfinished_action is None or before is None else _topics(before.goals)
        there = read_group_positions(request.group, topics, clusters, settings, store, since_ms)
    return _meant(request, there, before, len(list_serving_proxies(store)))


def _changes(request: ResetOffsets) -> bool:
    return request.target is not None or request.unfinished_action is not None


def _topics(goals: Sequence[ResetGoal]) -> dict[str, frozenset[int]]:
    found: dict[str, frozenset[int]] = {}
    for one in goals:
        found[one.topic] = found.get(one.topic, frozenset()) | {one.partition}
    return found


def _meant(request: ResetOffsets, there: GroupPositions, before: ResetRow | None, proxies: int) -> OffsetResetPlan:
    away = there.silent.items()
    remarks = [f"{name} does not answer ({error.message}): places there are not seen" for name, error in away]
    count = len(there.members.members)
    shown = [f"group {request.group} is at home on {there.home}, and has {count_phrase(count, 'member')}"]
    if before is not None and is_reset_under_way(before):
        shown.append(reset_running(before).message)
    unfinished = None
    if before is not None and is_reset_unfinished(before):
        since = format_time(before.since_ms)
        unfinished = RefusedError(
            "proxy.reset-unfinished", hint=UNFINISHED_HINT, group=request.group, by=before.set_by, since=since
        )
        shown.append(unfinished.message)
    goals, why = _goals(request, there, before)
    if request.unfinished_action is not None:
        remarks, why = [*remarks, *why], []
    to = {(one.topic, one.partition): one.to for one in goals}
    shown += [
        describe_partition(partition, to.get((partition.topic, partition.partition)))
        for partition in there.partitions[:PARTITIONS_SHOWN_MAX]
    ]
    if len(there.partitions) > PARTITIONS_SHOWN_MAX:
        shown.append(f"and {len(there.partitions) - PARTITIONS_SHOWN_MAX} more partitions")
    refusal = _refused(request, unfinished, why, count, proxies)
    if refusal is not None or not goals:
        return OffsetResetPlan((), tuple(shown), tuple(remarks), refusal)
    remarks += _what_stays(request, before)
    counts = {
        "count": _proxies(proxies),
        "members": count_phrase(count, "member"),
        "places": count_phrase(len(goals), "place"),
        "came": "",
    }
    steps = tuple(OffsetResetStep(stage, request.group, counts) for stage in OffsetResetStage)
    known = before.run if before is not None else ""
    return OffsetResetPlan(steps, tuple(shown), tuple(remarks), None, there.home, there.term, goals, known)


def _goals(
    request: ResetOffsets, there: GroupPositions, before: ResetRow | None
) -> tuple[tuple[ResetGoal, ...], list[str]]:
    if request.unfinished_action is not None:
        assert before is not None
        return resume_goals(
            before.goals if request.unfinished_action is UnfinishedResetAction.RESUME else reverse_goals(before.goals),
            there.partitions,
        )
    return compute_goals(request.target, there.partitions) if request.target is not None else ((), [])


def _what_stays(request: ResetOffsets, before: ResetRow | None) -> list[str]:
    if request.unfinished_action is not UnfinishedResetAction.UNDO or before is None:
        return []
    new = [f"{one.topic}-{one.partition}" for one in before.goals if one.was is None]
    return [f"where there was no place before, one stays: {join_names(new, NAMED_MAX)}"] if new else []


def _refused(
    request: ResetOffsets, unfinished: RefusedError | None, why: Sequence[str], members: int, proxies: int
) -> TwinshoreError | None:
    if not _changes(request):
        return None
    if unfinished and request.unfinished_action is None:
        return unfinished
    if why:
        return RefusedError("proxy.offsets-impossible", causes=join_names(why, NAMED_MAX, "; "))
    if members and not proxies:
        return RefusedError("proxy.no-proxy-serves", group=request.group, members=count_phrase(members, "member"))
    return None


def act(
    request: ResetOffsets, plan: OffsetResetPlan, settings: Settings, store: Store, by: str
) -> Iterator[OffsetResetStep]:
    """Yields each finished step. On an error before offsets are set, members go on at the old ones."""
    if not plan.steps:
        return
    with ExitStack() as stack:
        clusters = _clusters(settings, stack)
        look = partial(read_group_positions, request.group, _topics(plan.goals), clusters, settings, store)
        hands = OffsetReset(request.group, plan.home, plan.goals, clusters, store, by, look, plan.term, plan.known)
        hands.gather_s = request.gather_s
        hands.target = request.target
        hands.resumes_unfinished, hands.undoes = (
            request.unfinished_action is not None,
            request.unfinished_action is UnfinishedResetAction.UNDO,
        )
        try:
            hands.begin()
            held = hands.wait_for_proxies()
            hands.look_again(are_set=hands.shifts)
            yield _step(plan, OffsetResetStage.HOLD, count=_proxies(held))
            came, of = hands.gather()
            yield _step(plan, OffsetResetStage.GATHER, count=str(came), members=count_phrase(of, "member"))
            hands.is_about_to_set()
            hands.set_places()
            sent = count_phrase(len(hands.sent), "member")
            yield _step(plan, OffsetResetStage.SET, members=sent, came=_came(request, hands.goals))
            came = hands.gather_late()
            hands.prove()
            hands.end()
        except TwinshoreError as error:
            hands.give_up()
            if hands.is_half_done:
                error.hint = UNFINISHED_HINT
            raise
        except KeyboardInterrupt as error:
            hands.give_up()
            left = f"some places may be set; {UNFINISHED_HINT}" if hands.is_half_done else "no place has changed"
            raise KeyboardInterrupt(f"group {request.group}: {left}") from error
        except BaseException:
            hands.give_up()
            raise
        yield _step(plan, OffsetResetStage.REJOIN, count=str(came), members=sent)


def _came(request: ResetOffsets, goals: Sequence[ResetGoal]) -> str:
    """Describe a shift's goals: members may have committed since the plan was shown."""
    if request.target is None or request.target.way is not ResetTargetKind.SHIFT:
        return ""
    return ": " + join_names([f"{one.topic}-{one.partition}: {one.was} -> {one.to}" for one in goals], NAMED_MAX)


def _proxies(count: int) -> str:
    return f"{count} prox{'y' if count == 1 else 'ies'}"


def _step(plan: OffsetResetPlan, stage: OffsetResetStage, **counts: str) -> OffsetResetStep:
    step = next(offset_reset_step for offset_reset_step in plan.steps if offset_reset_step.stage is stage)
    return OffsetResetStep(stage, step.group, {**step.counts, **counts})


def _clusters(settings: Settings, stack: ExitStack) -> dict[str, KafkaCluster]:
    names = settings.of(SECTION).clusters
    made = {
        name: KafkaCluster(settings.cluster(name), patience_s=CLUSTER_TIMEOUT_S, call_s=CLUSTER_TIMEOUT_S)
        for name in names
    }
    return {name: stack.enter_context(closing(cluster)) for name, cluster in made.items()}
