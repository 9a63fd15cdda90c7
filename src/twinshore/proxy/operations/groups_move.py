"""Moves the groups of proxies' clients to another cluster: members gather, and committed offsets are copied."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from math import inf
from typing import Self

from twinshore.config.errors import ConfigError, KafkaError, RefusedError, StoreError, TwinshoreError
from twinshore.config.frozen import GROUPS_HOME
from twinshore.config.model import FIRST_TERM, Plan
from twinshore.config.sections.proxy import SECTION
from twinshore.config.sentences import Tell, count_phrase, join_names
from twinshore.config.settings import Settings
from twinshore.groups.core.goals import GroupOnBothSides, describe_ahead, describe_rereads, describe_short_logs
from twinshore.groups.offset_move import DONE, inspect_groups, links_between, resume_sync, set_offsets
from twinshore.groups.sync import load_home, save_home
from twinshore.kafka.clock import steady_s, wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.consumer_groups import CONSUMER_TYPE, ConsumerGroups, read_group_members, remove_members
from twinshore.proxy.operations.reset_offsets import check_no_reset_under_way, list_groups
from twinshore.replication.core.filters import INTERNAL_TOPICS
from twinshore.routing.core.home_records import HomeConflict, HomeRecord, HomeState, current_home, homes_place
from twinshore.routing.core.subscribers import SubscriberLog
from twinshore.routing.homes_topic import HomesTopic, SubscribersTopic
from twinshore.state.store import Store
from twinshore.switch.operations.plan import SwitchPlan
from twinshore.switch.operations.run import SwitchCaller
from twinshore.switch.operations.waves import WavesPlan

GroupsHome = HomeRecord | HomeConflict | None
# How many newer records a silent cluster may have.
UNSEEN_TERMS_MAX = 16
WRITE_MARGIN_S = 3.0  # by then the write of the next record has arrived, or is given up
NAMED_MAX = 5
CLUSTER_TIMEOUT_S = 5.0
# Members learn of the move with their next heartbeat, every three seconds by default, commit, and wait. Proxies report
# groups with members that have not. At first a proxy that reports none is not believed: it may have just begun.
GATHER_MIN_S = 4.0
GATHER_MAX_S = 30.0
# How long proxies may take to report that no commit is on its way; a killed proxy is awaited too.
PROXIES_TIMEOUT_S = 12.0
OFFSETS_COPY_TIMEOUT_S = 5.0
# How long proxies hold groups whose mover is gone; in the first step, in addition to the requested times.
PROXIES_HOLD_S = 60.0
RETRY_INTERVAL_S = 0.05


class GroupsHomeRecords:
    """Reads and writes the home record of groups, and follows which proxies have read it.

    `first`: the home without a record. `store`: keeps where groups have moved.
    """

    def __init__(self, clusters: Sequence[KafkaCluster], first: str, store: Store | None = None) -> None:
        self._first, self._store = first, store
        self._clusters = {cluster.name: cluster for cluster in clusters}
        self._homes_topics = {cluster.name: HomesTopic(cluster) for cluster in clusters}
        self._heard: set[str] = set()
        self._followers = SubscriberLog()
        self._subscribers_topics = [SubscribersTopic(cluster, self._followers) for cluster in clusters]
        self._held_until_s = inf

    def told(self) -> tuple[GroupsHome, dict[str, KafkaError]]:
        """Returns the current record and the clusters that do not answer. For silent clusters the store's record
        counts. RefusedError if only a newer version can read the current record.
        """
        records, silent = list[HomeRecord | None](), dict[str, KafkaError]()
        with suppress(StoreError):
            records.append(load_home(self._store) if self._store is not None else None)
        for name, homes_topic in self._homes_topics.items():
            try:
                records.append(homes_topic.read().get(GROUPS_HOME))
                self._heard.add(name)
            except KafkaError as error:
                silent[name] = error
        found = current_home(records)
        if isinstance(found, HomeRecord) and found.newer:
            raise RefusedError("routing.newer-home", topic=GROUPS_HOME, version=found.newer, place=homes_place())
        return found, silent

    def next(self, told: GroupsHome, state: HomeState, switch: str, by: str, hold_s: float = 0.0) -> HomeRecord:
        """Returns the next record of the same home. `hold_s`: after so long proxies end what it asks for."""
        now = self._current(told)
        record = replace(now, step=now.step + 1, state=state, hold_ms=int(hold_s * 1000))
        return replace(record, switch=switch, since_ms=wall_ms(), set_by=by)

    def _current(self, told: GroupsHome) -> HomeRecord:
        """Returns the current record, or one before the first; of a conflict either, since a higher record ends it."""
        if told is None:
            home_id = self._clusters[self._first].cluster_id()
            return HomeRecord(topic=GROUPS_HOME, home=self._first, cluster_id=home_id, term=FIRST_TERM, step=-1)
        return told.one if isinstance(told, HomeConflict) else told

    def moved(self, told: GroupsHome, to: str, switch: str, by: str) -> HomeRecord:
        """Returns the first record of the new home.

        If the home stays, the term rises further: a silent cluster may have newer records.
        """
        before = told.one if isinstance(told, HomeConflict) else told
        term, source = (before.term, before.home) if before is not None else (FIRST_TERM, self._first)
        term += 1 if source != to else UNSEEN_TERMS_MAX
        record = HomeRecord(topic=GROUPS_HOME, home=to, cluster_id=self._clusters[to].cluster_id(), term=term)
        return replace(record, switch=switch, source=source, since_ms=wall_ms(), set_by=by)

    def say(self, record: HomeRecord, names: Sequence[str], may: Callable[[], None] | None = None) -> None:
        """Write the record. RefusedError if another one came between. `may`: as in `HomesTopic.say`."""
        began_s = steady_s()
        for name in names:
            homes_topic = self._homes_topics[name]
            homes_topic.make()
            homes_topic.say([record], wall_ms(), may)
            if not homes_topic.log.is_current(record):
                raise RefusedError("proxy.groups-record-changed", cluster=name)
        self._held_until_s = began_s + record.hold_ms / 1000 if record.hold_ms else inf

    def check_still_held(self) -> None:
        """Raise RefusedError if a proxy may have ended the hold.

        Proxies count from reading the record, this process from before the write.
        """
        if steady_s() + WRITE_MARGIN_S > self._held_until_s:
            raise RefusedError("proxy.move-too-slow")

    def move(self, record: HomeRecord, to: str, names: Sequence[str]) -> None:
        """Write the record to the new home first: from then on groups are there.

        The mirror later writes it to silent clusters, from the store.
        """
        self.say(record, [to], self.check_still_held)
        if self._store is not None:
            save_home(self._store, record)
        with suppress(KafkaError, RefusedError):
            self.say(record, [name for name in names if name != to])

    def lacking(self, record: HomeRecord) -> list[str]:
        """Returns clusters that answered and have another record."""
        return [name for name in self._heard if self._homes_topics[name].homes.get(GROUPS_HOME) != record]

    def gathering(self, record: HomeRecord) -> list[str]:
        """Returns some groups with members that have not gathered, and proxies without this record."""
        late = self._heard_followers().gathering(GROUPS_HOME, record.word, steady_s())
        return sorted({name for subscriber in late for name in subscriber.busy or (subscriber.name or subscriber.id,)})

    def awaited(self, record: HomeRecord) -> list[str]:
        """Returns proxies that may still commit offsets at the old home."""
        waits = self._heard_followers().awaited({GROUPS_HOME: record.word}, steady_s())
        return sorted(subscriber.name or subscriber.id for subscriber in waits.get(GROUPS_HOME, ()))

    def _heard_followers(self) -> SubscriberLog:
        for topic in self._subscribers_topics:
            if topic.exists():
                topic.read()
        return self._followers


class GroupsMoveStage(StrEnum):
    GATHER = "gather"
    HOLD = "hold"
    COPY = "copy"
    MOVE = "move"
    FOLLOW = "follow"
    STAY = "stay"


GENTLE_STAGES = GroupsMoveStage.GATHER, GroupsMoveStage.HOLD, GroupsMoveStage.COPY, GroupsMoveStage.MOVE
_DONE = {
    GroupsMoveStage.GATHER: ("have members commit and wait", "members have committed, and wait"),
    GroupsMoveStage.HOLD: ("have no offset committed on {old}", "no offset is committed on {old} any more"),
    GroupsMoveStage.COPY: ("copy committed offsets to {to}", "committed offsets are on {to}: {told}"),
    GroupsMoveStage.MOVE: ("record that groups are at home on {to}", "groups are at home on {to}"),
    GroupsMoveStage.FOLLOW: ("sync offsets on {old} again", "not all offsets on {old} are synced yet: {told}"),
    GroupsMoveStage.STAY: ("record that groups stay on {to}", "groups stay on {to}"),
}


@dataclass(frozen=True, slots=True)
class GroupsMoveStep:
    """A step. `told`: the result."""

    stage: GroupsMoveStage
    old: str
    to: str
    told: str = ""

    def sentence(self, *, done: bool) -> str:
        return _DONE[self.stage][done].format(old=self.old, to=self.to, told=self.told)


@dataclass(frozen=True, slots=True)
class MoveGroups:
    """A requested move.

    `to`: the new home; empty: only look. `force`: even if the old home is silent. `gather_s`: how long to wait for
    members at work. `hold_s`: how long they may wait for a switch after that.
    """

    to: str = ""
    force: bool = False
    gather_s: float = GATHER_MAX_S
    hold_s: float = 0.0


def plan(request: MoveGroups, settings: Settings, store: Store | None) -> Plan[GroupsMoveStep]:
    """Plan the move. ConfigError if the cluster is not behind the proxy."""
    names = settings.of(SECTION).clusters
    if request.to and request.to not in names:
        raise ConfigError("proxy.cluster-not-behind", cluster=request.to, clusters=join_names(names, NAMED_MAX))
    with ExitStack() as stack:
        records = _records(settings, stack, store)
        told, silent = records.told()
        lacking = records.lacking(told) if isinstance(told, HomeRecord) else []
    home, shown = _home(told, names[0])
    if home not in names:
        silent[home] = KafkaError("it is none of the clusters behind the proxy")
    remarks = [f"{name} does not answer ({error.message})" for name, error in silent.items()]
    settled = told is None or (isinstance(told, HomeRecord) and told.state is HomeState.SETTLED)
    stages: tuple[GroupsMoveStage, ...] = ()
    refusal: TwinshoreError | None = None
    if request.to == home and request.force and silent and home not in silent:
        away = join_names(list(silent), NAMED_MAX)
        remarks.append(f"{away} may have the record of another home: the new record has a higher term")
        stages = (GroupsMoveStage.MOVE,)
    elif not request.to or (request.to == home and settled and (home in silent or not lacking)):
        pass
    elif request.to == home:
        stages = (GroupsMoveStage.STAY,)
    elif refusal := _refused(request, home, silent, store):
        pass
    elif home in silent:
        again = "records that were read after these are read again"
        remarks.append(f"groups continue at the offsets that were copied to {request.to}: {again}")
        stages = (GroupsMoveStage.MOVE,)
    else:
        assert store is not None
        refusal, more = _plan_gently(home, request.to, settings, store)
        remarks += more
        stages = GENTLE_STAGES if refusal is None else ()
    steps = tuple(GroupsMoveStep(stage, home, request.to) for stage in stages)
    return Plan(steps, (shown,), tuple(remarks), refusal)


def _plan_gently(home: str, to: str, settings: Settings, store: Store) -> tuple[TwinshoreError | None, list[str]]:
    """Returns why groups cannot move, and remarks."""
    try:
        check_no_reset_under_way(store)
        _check_no_newer_members(home, settings)
    except RefusedError as error:
        return error, []
    groups = inspect_groups(links_between(settings, store, home, to), settings, store, ".*", to, stable=False)
    refusal, remarks = _judged(groups, home, to)
    refusal = refusal or _left_behind(groups, home, to, settings)
    return refusal, [*remarks, describe_rereads(groups.values(), home, to)]


def _home(told: GroupsHome, first: str) -> tuple[str, str]:
    if told is None:
        return first, f"groups are at home on {first}, the first of [proxy] clusters"
    if isinstance(told, HomeConflict):
        return told.one.home, f"clusters say different things: groups are at home on {told.one.home}, {told.other.home}"
    under_way = "" if told.state is HomeState.SETTLED else f"; {told.set_by} moves them, or has begun to"
    return told.home, f"groups are at home on {told.home}, in term {told.term}{under_way}"


def _refused(
    request: MoveGroups, home: str, silent: Mapping[str, KafkaError], store: Store | None
) -> TwinshoreError | None:
    if request.to in silent:
        return RefusedError("proxy.target-silent", cluster=request.to, cause=silent[request.to].message)
    if home in silent and not request.force:
        return RefusedError("proxy.groups-home-silent", home=home)
    if request.force and home not in silent:
        return RefusedError("proxy.groups-home-answers", home=home)
    return RefusedError("proxy.no-store") if store is None and home not in silent else None


def _judged(groups: dict[str, GroupOnBothSides], old: str, to: str) -> tuple[RefusedError | None, list[str]]:
    unheard = [f"{name} ({group.unheard})" for name, group in groups.items() if group.unheard]
    if unheard:
        return RefusedError("proxy.offsets-unread", cause=join_names(unheard, NAMED_MAX)), []
    live = sorted(name for name, group in groups.items() if group.new_live)
    if live:
        return RefusedError("proxy.target-has-members", cluster=to, groups=join_names(live, NAMED_MAX)), []
    remarks = [f"{count_phrase(len(groups), 'group')} with committed offsets in topics that both clusters have"]
    lost = sorted(name for name, group in groups.items() if group.lost)
    if lost:
        remarks.append(f"some offsets have no known counterpart on {to}, of {join_names(lost, NAMED_MAX)}")
    ahead = [f"{name} {said}" for name, group in groups.items() if (said := describe_ahead(group.goals, old, to))]
    remarks += [f"{one}: these offsets stay" for one in ahead[:NAMED_MAX]]
    return None, remarks


def act(
    request: MoveGroups, plan: Plan[GroupsMoveStep], settings: Settings, store: Store | None, by: str
) -> Generator[GroupsMoveStep, None, None]:
    """Yields each finished step. On an error before groups have moved, members go on at the old home."""
    if not plan.steps:
        return
    first = plan.steps[0]
    switch = secrets.token_hex(16)
    with ExitStack() as stack:
        records = _records(settings, stack, store)
        told, silent = records.told()
        names = [name for name in settings.of(SECTION).clusters if name not in silent]
        match first.stage:
            case GroupsMoveStage.MOVE:
                records.move(records.moved(told, request.to, switch, by), request.to, names)
                yield first
            case GroupsMoveStage.STAY:
                records.move(records.next(told, HomeState.SETTLED, switch, by), first.to, names)
                yield first
            case _:
                assert store is not None
                yield from _Gently(first.old, request, records, names, switch, by).steps(told, settings, store)


@dataclass(frozen=True, slots=True)
class _Gently:
    """A move while the old home answers: nothing is read again."""

    old: str
    request: MoveGroups
    records: GroupsHomeRecords
    names: Sequence[str]
    switch: str
    by: str

    def steps(self, told: GroupsHome, settings: Settings, store: Store) -> Iterator[GroupsMoveStep]:
        to = self.request.to
        record = self._say(told, HomeState.ANNOUNCED, PROXIES_HOLD_S + self.request.gather_s + self.request.hold_s)
        try:
            # After the record: a reset looks for the record after writing its own row.
            check_no_reset_under_way(store)
            _check_no_newer_members(self.old, settings)
            _wait_for_members(self.records, record, self.request.gather_s)
            _check_no_newer_members(self.old, settings)  # by now every proxy knows, and lets none of them join
            yield GroupsMoveStep(GroupsMoveStage.GATHER, self.old, to)
            record = self._say(record, HomeState.HELD, PROXIES_HOLD_S)
            _wait_for_proxies(self.records, record)
            yield GroupsMoveStep(GroupsMoveStage.HOLD, self.old, to)
            groups, copied = _copy(self.old, to, settings, store, self.by)
            yield GroupsMoveStep(GroupsMoveStage.COPY, self.old, to, copied)
            self.records.move(self.records.moved(record, to, self.switch, self.by), to, self.names)
        except BaseException:
            self._say(self.records.told()[0], HomeState.SETTLED)
            raise
        trouble = _follow(groups, self.old, to, settings, store, self.by)
        yield GroupsMoveStep(GroupsMoveStage.MOVE, self.old, to)
        if trouble:
            yield GroupsMoveStep(GroupsMoveStage.FOLLOW, self.old, to, trouble)

    def _say(self, told: GroupsHome, state: HomeState, hold_s: float = 0.0) -> HomeRecord:
        record = self.records.next(told, state, self.switch, self.by, hold_s)
        self.records.say(record, self.names, self.records.check_still_held if state is HomeState.HELD else None)
        return record


def _wait_for_members(records: GroupsHomeRecords, record: HomeRecord, gather_s: float) -> None:
    """Wait for members that have not rejoined: they could commit after the copy."""
    time.sleep(GATHER_MIN_S)
    until_s = time.monotonic() + gather_s - GATHER_MIN_S
    while late := records.gathering(record):
        if time.monotonic() > until_s:
            raise RefusedError("proxy.members-not-rejoined", groups=join_names(late, NAMED_MAX), seconds=gather_s)
        time.sleep(RETRY_INTERVAL_S)


def _wait_for_proxies(records: GroupsHomeRecords, record: HomeRecord) -> None:
    until_s = time.monotonic() + PROXIES_TIMEOUT_S
    while waits := records.awaited(record):
        if time.monotonic() > until_s:
            raise RefusedError("proxy.commits-not-held", proxies=join_names(waits, NAMED_MAX))
        time.sleep(RETRY_INTERVAL_S)


def _copy(old: str, to: str, settings: Settings, store: Store, by: str) -> tuple[dict[str, GroupOnBothSides], str]:
    """Copy the offsets, and describe the result. Waits for offsets not replicated yet, or that an open transaction may
    move.
    """
    links = links_between(settings, store, old, to)
    until_s = time.monotonic() + OFFSETS_COPY_TIMEOUT_S
    while True:
        groups = inspect_groups(links, settings, store, ".*", to, stable=True)
        short = [f"group {name}: {group.unheard}" for name, group in groups.items() if group.unheard]
        short += [f"{to}: {why}" for group in groups.values() if (why := describe_short_logs(group.goals))]
        if not short:
            break
        if time.monotonic() > until_s:
            raise RefusedError("proxy.offsets-not-copied", cause=short[0])
        time.sleep(RETRY_INTERVAL_S)
    refused, _ = _judged(groups, old, to)
    if refused := refused or _left_behind(groups, old, to, settings):
        raise refused
    moves = {
        name: [goal for goal in group.goals if goal.has is None or goal.has < goal.to] for name, group in groups.items()
    }
    steps = [step for some in set_offsets(links, settings, store, moves, by).values() for step in some]
    for step in steps:
        if step.refused:
            raise RefusedError("proxy.offsets-not-copied", cause=step.sentence(done=True))
    return groups, f"{count_phrase(len(steps), 'committed offset')} of {count_phrase(len(groups), 'group')}"


def _follow(seen: dict[str, GroupOnBothSides], old: str, to: str, settings: Settings, store: Store, by: str) -> str:
    """Remove members from the old home, and resume the sync there. Returns what an operator has to do.

    Else offsets in twins would count as changed by others.
    """
    try:
        with closing(_cluster(old, settings)) as cluster, closing(ConsumerGroups(cluster)) as groups:
            live = [name for name, group in seen.items() if group.old_live]
            for name, node in groups.coordinators(live).items() if live else ():
                remove_members(cluster, node, name, read_group_members(cluster, node, name).members)
        goals = {name: group.goals for name, group in seen.items()}
        done = resume_sync(links_between(settings, store, old, to), settings, store, goals, by)
    except KafkaError as error:
        return f"{old} does not answer ({error.message}); then `twinshore groups move '.*'`"
    bad = sorted(name for name, steps in done.items() if any(step.outcome != DONE for step in steps))
    return f"`twinshore groups move` for {join_names(bad, NAMED_MAX)}" if bad else ""


def _left_behind(seen: Mapping[str, GroupOnBothSides], old: str, to: str, settings: Settings) -> RefusedError | None:
    """Returns why groups cannot move: offsets in topics of both clusters that no link syncs.

    `seen`: what links sync.
    """
    with ExitStack() as stack:
        cluster, other = (stack.enter_context(closing(_cluster(name, settings))) for name in (old, to))
        both = (cluster.metadata().topics.keys() & other.metadata().topics.keys()) - INTERNAL_TOPICS
        _, places, why = stack.enter_context(closing(ConsumerGroups(cluster))).all_places()
    if why:
        return RefusedError("proxy.offsets-unread", cause=why[0].message)
    named = []
    for name, group in sorted(places.items()):
        taken = seen.get(name, GroupOnBothSides())
        known = {goal.left_topic for goal in taken.goals}  # a group that has just begun may have more offsets by now
        left = {where[0] for where in group.places if f"{where[0]}-{where[1]}" not in taken.lost} & (both - known)
        if left:
            named.append(f"{name} in {join_names(sorted(left), NAMED_MAX)}")
    if not named:
        return None
    return RefusedError("proxy.offsets-not-synced", groups=join_names(named, NAMED_MAX, "; "), old=old, new=to)


def _check_no_newer_members(home: str, settings: Settings) -> None:
    """Raise RefusedError if a group of the newer protocol (KIP-848) has members, which cannot be made to wait."""
    with closing(_cluster(home, settings)) as cluster:
        groups = list_groups(cluster).values()
    if live := sorted(one.group for one in groups if one.kind == CONSUMER_TYPE and one.live):
        raise RefusedError("proxy.move-needs-empty-groups", groups=join_names(live, NAMED_MAX))


def _cluster(name: str, settings: Settings) -> KafkaCluster:
    return KafkaCluster(settings.cluster(name), patience_s=CLUSTER_TIMEOUT_S, call_s=CLUSTER_TIMEOUT_S)


def _records(settings: Settings, stack: ExitStack, store: Store | None) -> GroupsHomeRecords:
    names = settings.of(SECTION).clusters
    clusters = [stack.enter_context(closing(_cluster(name, settings))) for name in names]
    return GroupsHomeRecords(clusters, names[0], store)


def plan_with_switch(to: str, settings: Settings, store: Store, switch: SwitchPlan) -> Plan[GroupsMoveStep]:
    """Plan to move groups with a switch. Several waves are refused: consumers would wait from before the hold until the
    end.
    """
    if isinstance(switch, WavesPlan):
        return Plan(refusal=RefusedError("proxy.groups-with-waves", to=to))
    return plan(MoveGroups(to), settings, store)


class GroupsWithSwitch:
    """Moves groups with a switch.

    Members wait from `begin` on, as long as the switch may hold writers and some time more. `go_on` moves them right
    after the topics. Without `go_on` and `end`, members go on at the old home on exit.
    """

    def __init__(
        self,
        plan: Plan[GroupsMoveStep] | None,
        to: str,
        settings: Settings,
        store: Store,
        caller: SwitchCaller,
        switch: SwitchPlan,
    ) -> None:
        request = MoveGroups(to, hold_s=switch.state.hold_s_max if switch.state else 0.0)
        self._plan, self._caller = plan, caller
        self._act = partial(act, request, settings=settings, store=store, by=caller.by)
        self._steps: Generator[GroupsMoveStep, None, None] | None = None
        self._refusal: TwinshoreError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._steps is not None:
            self._steps.close()

    def begin(self) -> None:
        """Make members commit and wait."""
        if self._plan is not None:
            self._steps = self._act(plan=self._plan)
            self._tell_next()

    def go_on(self) -> None:
        """Move the groups. If that fails, the switch continues."""
        try:
            while self._tell_next():
                pass
        except TwinshoreError as error:
            self._caller.tell(f"groups: {error.message}")
            self._refusal = error

    def end(self) -> None:
        """Finish after the switch. Raises if groups were not moved."""
        self.go_on()
        if self._refusal is not None:
            raise self._refusal

    def _tell_next(self) -> bool:
        step = next(self._steps, None) if self._steps is not None else None
        if step is not None:
            self._caller.tell(step.sentence(done=True))
        return step is not None


def move_groups_by_force(to: str, settings: Settings, where: object, by: str, tell: Tell) -> None:
    """Move groups after a forced switch, even if their home is silent. `where`: the store, if available."""
    store = where if isinstance(where, Store) else None
    request = MoveGroups(to, force=True)
    meant = plan(request, settings, store)
    if meant.refusal:
        request = MoveGroups(to)
        meant = plan(request, settings, store)
    if meant.refusal:
        raise meant.refusal
    for step in act(request, meant, settings, store, by):
        tell(step.sentence(done=True))
