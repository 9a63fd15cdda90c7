"""Sets the protection of topics, and shows what acknowledgements of them mean.

Levels stand in `twinshore.protection` on each cluster. A higher level counts once every cluster has it, so it is
refused while one is away. A lower one may be set while a cluster is away: a process that reads only that cluster keeps
the higher.

The section `protection` of the settings is a seed: mirrors give its levels to topics that have none (`seed`), operators
to all that it names (`--as-settings`).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from twinshore.config.declaration import setting_rows
from twinshore.config.errors import ConfigError, KafkaError, RefusedError, TwinshoreError
from twinshore.config.model import Link, OffsetMode, Plan, TopicPartition
from twinshore.config.schema import did_you_mean, parse_member
from twinshore.config.sections.protection import SECTION, ProtectionSection
from twinshore.config.sentences import count_phrase, format_time, join_names
from twinshore.config.settings import Settings
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.protocol.primitives import to_printable
from twinshore.protection.core.model import AfterFailover, GateState, ProtectionLevel, ReachedEpoch, ReadFrom
from twinshore.protection.core.records import (
    NEWER_NUMBER,
    GateLog,
    ProtectionLog,
    TopicProtection,
    current_levels,
    level_line,
)
from twinshore.protection.topic import GatesTopic, ProtectionTopic, read_accounts
from twinshore.replication.core.lag import status_ttl_s
from twinshore.replication.core.model import FLOWING, STOPPED
from twinshore.replication.links import effective_links, load_links
from twinshore.runtime.endpoints import LinkClients
from twinshore.state.core.values import AuditRow
from twinshore.state.opening import open_or_temporary
from twinshore.state.store import Store

ASK_TIMEOUT_S: Final = 5.0
NAMED_MAX: Final = 5
# Records of processes that ended stay; they are written each second.
LATELY_MS: Final = 60_000
REPLICAS_MIN: Final = 3
IN_SYNC_MIN: Final = 2
_ORDER: Final = list(ProtectionLevel)
_STATES: Final = [str(one) for one in GateState]
OPTIONS: Final = tuple(row.name for row in setting_rows(ProtectionSection))
UNSET: Final = TopicProtection(ProtectionLevel.ASYNC, 1)
# A process that runs writes its record each second.
RECORD_MS_MAX: Final = 15_000


@dataclass(frozen=True, slots=True)
class ProtectionRequest:
    """`topics`: regular expressions for whole names. `as_settings`: each as the section `protection` has it; without
    `topics` all that it names. `even_weak`: also where a twin may lose what it confirmed. What is None stays as it is.
    """

    topics: tuple[str, ...]
    level: ProtectionLevel
    alone_after_s: float | None = None
    twin: str | None = None
    after_failover: AfterFailover | None = None
    loss_at_most_s: float | None = None
    even_weak: bool = False
    read: ReadFrom | None = None
    as_settings: bool = False

    def __post_init__(self) -> None:
        """ConfigError for an option that the level has no use for."""
        is_async, both = self.level is ProtectionLevel.ASYNC, self.read is ReadFrom.BOTH
        needless = {"--read both": both, "--alone-after": self.alone_after_s, "--loss-at-most": self.loss_at_most_s}
        for option, is_given in needless.items():
            if is_given and is_async is not (option == "--loss-at-most") and not self.as_settings:
                level = "sync" if is_async else "async"
                raise ConfigError("replication.protection-needs-level", option=option, level=level)

    def protection(self, current: TopicProtection) -> TopicProtection:
        """Returns the current one with what is given, and without what the level has no use for."""
        unused = {"read": ReadFrom.HOME} if self.level is ProtectionLevel.ASYNC else {"loss_at_most_s": 0.0}
        given = {name: one for name in OPTIONS if (one := getattr(self, name)) is not None}
        return replace(current, by="", **{**unused, **given})


def parse_read(text: str | None) -> ReadFrom | None:
    return None if text is None else parse_member(ReadFrom, "read", text)


def parse_level(text: str, *, as_settings: bool = False) -> ProtectionLevel:
    """`as_settings`: none is given."""
    if as_settings == bool(text):
        raise ConfigError("replication.one-of-two", one="--level", other="--as-settings")
    return parse_member(ProtectionLevel, "level", text or ProtectionLevel.ASYNC)


def parse_after_failover(text: str | None) -> AfterFailover | None:
    return None if text is None else parse_member(AfterFailover, "after-failover", text)


@dataclass(frozen=True, slots=True)
class ProtectStep:
    """`link`: which replicates the topic; empty if none does."""

    topic: str
    link: str
    was: TopicProtection
    protection: TopicProtection

    @property
    def before(self) -> ProtectionLevel:
        return self.was.level

    @property
    def is_higher(self) -> bool:
        """Whether each cluster must have it."""
        reads_more = self.was.reads_both or not self.protection.reads_both
        return not reads_more or _ORDER.index(self.protection.level) > _ORDER.index(self.before)

    def sentence(self, *, done: bool) -> str:
        changes = [
            f"{name.removesuffix('_s')} {json.dumps(now)}, before {json.dumps(before)}"
            for name in OPTIONS[1:]
            if (now := getattr(self.protection, name)) != (before := getattr(self.was, name))
        ]
        level = f"topic {self.topic} {'is' if done else 'would be'} {self.protection.level}, before {self.before}"
        return "; ".join((level, *changes))


@dataclass(slots=True)
class ClusterProtection:
    """What one cluster says; `error` if it does not answer."""

    protection: ProtectionLog = field(default_factory=ProtectionLog)
    gates: GateLog = field(default_factory=GateLog)
    error: str = ""


@dataclass(frozen=True, slots=True)
class PartitionAlone:
    """From offset `since` on, acknowledgements of the partition may be the home's alone; `gate` says so."""

    partition: int
    since: int
    gate: str


@dataclass(frozen=True, slots=True)
class ProtectedTopic:
    """`gates`: processes that hold acknowledgements of the topic, or did. `mixing`: clients that lately wrote to it and
    to other topics on one connection. Of processes that run: `state`, the worst, empty if unknown, and since when;
    `waiting`: writes by cause; `delay_ms`: the longest, see `GateRecord`. `has_twin`: none since a forced switch.
    `away`: a cluster that does not answer, perhaps its home or twin.
    """

    topic: str
    protection: TopicProtection
    gates: int
    alone: tuple[PartitionAlone, ...]
    mixing: tuple[str, ...] = ()
    state: str = ""
    since_ms: int = 0
    waiting: Mapping[str, int] = field(default_factory=dict)
    delay_ms: float = 0.0
    has_twin: bool = True
    away: str = ""

    @property
    def waits(self) -> bool:
        """Whether a cluster that is away holds up its writes, as far as is known."""
        return bool(self.away) and self.protection.watches and self.has_twin and not self.state

    def sentence(self) -> str:
        writers = f", {self.gates} processes" if self.protection.holds else ""
        return f"{self.topic}: {self.protection.level}{writers}: {'; '.join(self._parts())}"

    def _parts(self) -> Iterator[str]:
        since = f" since {format_time(self.since_ms)}" if self.state else ""
        if self.protection.holds and not self.has_twin:
            is_alone = self.protection.after_failover is AfterFailover.ALONE
            what = "acknowledged by the home alone" if is_alone else "writes are refused"
            yield f"{what}, since a forced switch left it without a twin"
            return
        if self.waits:
            yield f"{self.away} is away: writes wait"
        elif self.state == GateState.STALLED:
            yield f"writes are refused{since}"
        elif self.state == GateState.ALONE:
            yield f"acknowledged by the home alone{since}"
        elif self.state or not self.protection.holds:
            yield f"acknowledged by the home{' and the twin' * self.protection.holds}{since}"
        else:
            yield "no proxy says now what acknowledgements mean"
        if self.alone:
            places = [f"partition {one.partition} from offset {one.since}" for one in self.alone]
            yield f"the twin may lack what the home alone acknowledged: {join_names(places, NAMED_MAX)}"
        if self.protection.reads_both:
            yield "consumers read all that it has there" if self.alone else "consumers read what both have"
        if self.waiting:
            causes = [f"{cause} ({number})" for cause, number in self.waiting.items()]
            yield f"{count_phrase(sum(self.waiting.values()), 'write')} waiting: {join_names(causes, NAMED_MAX)}"
        if self.protection.holds and self.delay_ms:
            yield f"answers wait {self.delay_ms:g} ms for the twin at the median"
        elif self.protection.watches and not self.protection.holds:
            behind = f", and it is {self.delay_ms / 1000:.1f} s" if self.state else ""
            yield f"refused while the twin is over {self.protection.loss_at_most_s:g} s behind{behind}"


@dataclass(frozen=True, slots=True)
class ProtectionOverview:
    topics: tuple[ProtectedTopic, ...]
    away: tuple[tuple[str, str], ...]

    def as_values(self) -> dict[str, Any]:
        return {
            "topics": [asdict(one) for one in self.topics],
            "unreachable": [{"cluster": name, "error": error} for name, error in self.away],
        }

    def as_settings(self) -> Iterator[str]:
        """Yields lines of a settings file: the section `protection` that has these levels."""
        for one in self.topics:
            yield f"[protection.{json.dumps(one.topic.replace('.', '[.]'))}]"
            for row in setting_rows(ProtectionSection):
                value = getattr(one.protection, row.name)
                if row.name == "level" or value != row.default:
                    yield f"{row.name} = {json.dumps(value)}"


def read_clusters(settings: Settings) -> dict[str, ClusterProtection]:
    found = {}
    for name, cluster in settings.clusters.items():
        with closing(KafkaCluster(cluster, patience_s=ASK_TIMEOUT_S, call_s=ASK_TIMEOUT_S)) as kafka:
            try:
                found[name] = ClusterProtection(ProtectionTopic(kafka).read(), GatesTopic(kafka).read())
            except KafkaError as error:
                found[name] = ClusterProtection(error=str(error))
    return found


def show(topics: Sequence[str], settings: Settings) -> ProtectionOverview:
    """Returns the topics that have a protection, or those of them that match. KafkaError if no cluster answers."""
    clusters = read_clusters(settings)
    away = tuple((name, one.error) for name, one in clusters.items() if one.error)
    if len(away) == len(clusters):
        raise KafkaError(f"no cluster says which topics are protected: {away[0][1] if away else 'there is none'}")
    shown = []
    for topic, protection in sorted(current_levels(one.protection for one in clusters.values()).items()):
        if topics and not any(re.fullmatch(pattern, topic) for pattern in topics):
            continue
        records = {
            gate: one for side in clusters.values() for (name, gate), one in side.gates.gates.items() if name == topic
        }
        alone = [
            PartitionAlone(number, since, gate)
            for gate, record in records.items()
            for number, since in record.alone.items()
        ]
        mixing = {name for one in records.values() if wall_ms() - one.at_ms < LATELY_MS for name in one.mixing}
        alone.sort(key=lambda one: one.partition)
        live = [
            one
            for one in records.values()
            if one.state in _STATES and one.level == protection.number and wall_ms() - one.at_ms < RECORD_MS_MAX
        ]
        state = max((one.state for one in live), key=_STATES.index, default="")
        waiting = sum((Counter(one.waiting) for one in live), Counter[str]())
        shown.append(
            ProtectedTopic(
                topic,
                protection,
                len(records),
                tuple(alone),
                tuple(map(to_printable, sorted(mixing))),
                state,
                min((one.since_ms for one in live if one.state == state), default=0),
                waiting,
                max((one.delay_ms for one in live), default=0.0),
                not any(one.protection.is_without_twin(topic) for one in clusters.values()),
                next((name for name, _ in away if protection.twin in ("", name)), ""),
            )
        )
    return ProtectionOverview(tuple(shown), away)


@dataclass(frozen=True, slots=True)
class PartitionExplained:
    """`home_end`, `twin_end`: the high watermarks. `open_since`: where the oldest open transaction begins; -1: none is
    open. `epoch`: the home's leader epoch. `reached`: what the mirror says; None if nothing that counts. -1: its
    cluster is away.
    """

    partition: TopicPartition
    home_end: int
    twin_end: int
    open_since: int
    open_ms: int
    epoch: int
    reached: ReachedEpoch | None

    def reasons(self) -> Iterator[str]:
        """Yields why writes wait."""
        if self.reached is None and self.twin_end >= 0:
            yield "no mirror says that the twin is a copy"
        if self.reached and self.reached.is_stopped:
            yield "replication is stopped: `twinshore status` says why"
        if self.reached and self.home_end >= 0 and self.reached.epoch != self.epoch:
            yield f"the mirror has reached leader epoch {self.reached.epoch}, and the home is in epoch {self.epoch}"
        if self.open_since >= 0:
            yield (
                f"an open transaction begins at offset {self.open_since}, {self.open_ms / 1000:.0f} s ago:"
                " nothing behind it is replicated"
            )

    def sentence(self) -> str:
        why = "; ".join(self.reasons())
        home, twin = (end if end >= 0 else "an unknown offset" for end in (self.home_end, self.twin_end))
        ends = f"{self.partition}: the home ends at {home}, the twin at {twin}"
        return f"{ends}: {why}" if why else ends


@dataclass(frozen=True, slots=True)
class TopicExplained:
    """`causes`: what holds up each partition: clusters that are away, a mirror that does not replicate."""

    link: str
    topic: ProtectedTopic
    partitions: tuple[PartitionExplained, ...]
    loss: str
    causes: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        yield self.topic.sentence()
        yield from (f"  {one}" for one in self.causes)
        yield from (f"  {one.sentence()}" for one in self.partitions)
        if self.topic.mixing:
            names = join_names(list(self.topic.mixing), NAMED_MAX)
            yield f"  writes of these clients to other topics wait as well, on one connection: {names}"
        yield f"  a forced switch now: {self.loss}"

    def as_values(self) -> dict[str, Any]:
        partitions = [{**asdict(one), "reasons": list(one.reasons())} for one in self.partitions]
        topic, causes = asdict(self.topic), list(self.causes)
        return {"link": self.link, "topic": topic, "causes": causes, "partitions": partitions, "loss": self.loss}


def explain(topic: str, settings: Settings, store: Store) -> TopicExplained:
    """Says why writes to the topic wait, and what a forced switch would lose, also while its home or twin is away.
    ConfigError if they wait for no twin.
    """
    overview = show((), settings)
    watching = {one.topic: one for one in overview.topics if one.protection.watches}
    if topic not in watching:
        raise ConfigError("replication.not-protected", topic=topic, near=did_you_mean(topic, watching))
    shown = watching[topic]
    links = [one.link for one in effective_links(settings.links, store).values()]
    found = [link for link in links if any(row.topic == topic for row in store.twins.active(link.name))]
    found = [link for link in found if shown.protection.twin in ("", link.target)]
    if not found:
        raise RefusedError("replication.protection-no-twin", topic=topic)
    link, away = found[0], dict(overview.away)
    causes = [f"{name} is away: {away[name]}" for name in (link.source, link.target) if name in away]
    causes += _why_idle(link.name, settings, store)
    identity = store.links.identity(link.name)
    with LinkClients(link, settings, patience_s=ASK_TIMEOUT_S, call_s=ASK_TIMEOUT_S) as clients:
        home, twin = (None if one.name in away else one for one in (clients.source, clients.target))
        home_id = home.cluster_id() if home else identity.source_cluster_id if identity else ""
        partitions = tuple(_explained(topic, home, twin, home_id)) if home or twin else ()
        accounts = read_accounts(twin, [topic]) if twin else []
    lacking = sum(max(0, one.home_end - one.twin_end) for one in partitions)
    loss = f"{lacking:,} offsets that {link.target} lacks" if home and twin else "it is not known what is lost"
    loss = accounts[0].sentence(link.source, link.target) if accounts else loss
    return TopicExplained(link.name, shown, partitions, loss, tuple(causes))


def _why_idle(link: str, settings: Settings, store: Store) -> Iterator[str]:
    status = next((one for one in store.links.statuses() if one.link == link), None)
    if status is None:
        yield f"no mirror of {link} has run yet"
    elif status.state == STOPPED or wall_ms() - status.updated_ms > 1000 * status_ttl_s(settings.mirror.progress_s):
        yield f"no mirror of {link} runs, since {format_time(status.updated_ms)}: {status.sentence}"
    elif status.state != FLOWING:
        yield f"{link}: {status.state}: {status.sentence}"


def _explained(
    topic: str, home: KafkaCluster | None, twin: KafkaCluster | None, home_id: str
) -> Iterator[PartitionExplained]:
    """One of the two may be away."""
    side = home or twin
    assert side is not None
    known, log = side.metadata([topic], refresh=True).topics[topic].partitions, ProtectionLog()
    if twin is not None:
        log = ProtectionTopic(twin).read()
    every = [TopicPartition(topic, one.partition) for one in known]
    epochs = {TopicPartition(topic, one.partition): one.leader_epoch for one in known}
    ends, twin_ends = (
        cluster.list_offsets(every, OffsetKind.HIGH_WATERMARK) if cluster else dict.fromkeys(every, -1)
        for cluster in (home, twin)
    )
    producers = home.describe_producers(every) if home else {}
    for partition in every:
        in_transaction = [one for one in producers.get(partition, ()) if one.current_txn_start >= 0]
        oldest = min(in_transaction, key=lambda one: one.current_txn_start, default=None)
        yield PartitionExplained(
            partition,
            ends[partition],
            twin_ends[partition],
            oldest.current_txn_start if oldest else -1,
            wall_ms() - oldest.last_timestamp if oldest else 0,
            epochs[partition],
            log.reached_of(home_id, topic, partition.partition),
        )


@dataclass(frozen=True, slots=True)
class _Known:
    """`twins`: by topic the links that replicate it. `levels`: by topic, of all clusters that answer."""

    twins: Mapping[str, Sequence[Link]]
    clusters: Mapping[str, ClusterProtection]
    levels: Mapping[str, TopicProtection]

    def has_everywhere(self, topic: str, wanted: TopicProtection) -> bool:
        """Whether each cluster that answers has this protection, whatever its number."""
        current = self.levels.get(topic)
        if current is None or replace(current, number=wanted.number, by=wanted.by) != wanted:
            return False
        return all(one.error or one.protection.levels.get(topic) == current for one in self.clusters.values())


def _read_known(settings: Settings, store: Store) -> _Known:
    twins: dict[str, list[Link]] = {}
    for one in effective_links(settings.links, store).values():
        for topic in {row.topic for row in store.twins.active(one.link.name)}:
            twins.setdefault(topic, []).append(one.link)
    clusters = read_clusters(settings)
    return _Known(twins, clusters, current_levels(one.protection for one in clusters.values()))


def plan(request: ProtectionRequest, settings: Settings, store: Store) -> Plan[ProtectStep]:
    """Plans the request. RefusedError where a topic has no twin that counts, or a cluster must not be away."""
    if not request.topics and not request.as_settings:
        raise ConfigError("replication.one-of-two", one="topics", other="--as-settings")
    if request.twin:
        settings.cluster(request.twin)
    known = _read_known(settings, store)
    wanted = {topic: request.protection(known.levels.get(topic, UNSET)) for topic in {*known.twins, *known.levels}}
    if request.as_settings:
        wanted = {topic: replace(one, number=1) for topic in wanted if (one := seed_of(topic, settings))}
    missing = "replication.protection-no-section" if request.as_settings else "replication.protection-no-topic"
    topics = _matched(request.topics, wanted, missing) if request.topics else sorted(wanted)
    return _plan({topic: wanted[topic] for topic in topics}, known, settings, even_weak=request.even_weak)


def _plan(
    wanted: Mapping[str, TopicProtection], known: _Known, settings: Settings, *, even_weak: bool
) -> Plan[ProtectStep]:
    steps, remarks = [], []
    away = {name: one.error for name, one in known.clusters.items() if one.error}
    for topic, protection in wanted.items():
        if known.has_everywhere(topic, protection):
            continue
        current = known.levels.get(topic)
        number = current.number + 1 if current else protection.number
        links = [link for link in known.twins.get(topic, ()) if protection.twin in ("", link.target)]
        protection, name = replace(protection, number=number), links[0].name if links else ""
        steps.append(step := ProtectStep(topic, name, current or UNSET, protection))
        link = _check_twin(topic, links) if protection.watches else None
        if away and step.is_higher:
            clusters = join_names([*away], NAMED_MAX)
            raise RefusedError("replication.protection-away", clusters=clusters, level=protection.level)
        if link and link.target not in away and (weak := _weakness(topic, link.target, settings)):
            if protection.level is ProtectionLevel.STRICT and not even_weak:
                raise RefusedError("replication.protection-weak", topic=topic, cluster=link.target, why=weak)
            remarks.append(f"topic {topic} on {link.target} may lose what it confirmed: {weak}")
    remarks += [f"{name} is away, and is not told: {error}" for name, error in away.items()]
    return Plan(tuple(steps), shown=() if steps else ("nothing to change",), remarks=tuple(remarks))


def seed_of(topic: str, settings: Settings) -> TopicProtection | None:
    """Returns the protection that the settings have for the topic. Its number is lower than any that a verb gives."""
    sections = settings.of(SECTION)
    found = [topic, *(pattern for pattern in sections if re.fullmatch(pattern, topic))]
    section = next((sections[name] for name in found if name in sections), None)
    if section is None:
        return None
    level, promoted, read = section.level, section.after_failover, section.read
    words = {"level": ProtectionLevel(level), "after_failover": AfterFailover(promoted), "read": ReadFrom(read)}
    return TopicProtection(**{**asdict(section), **words, "number": 0})


def seed(topics: Iterable[str], settings: Settings, store: Store) -> Iterator[str]:
    """Gives those of the topics that have no level on any cluster that of the settings. Yields why one gets none."""
    wanted = {topic: found for topic in sorted(topics) if (found := seed_of(topic, settings))}
    if not wanted:
        return
    settings = settings.with_links(load_links(settings, store).links)
    known = _read_known(settings, store)
    for topic in wanted.keys() - known.levels.keys():
        try:
            planned = _plan({topic: wanted[topic]}, known, settings, even_weak=False)
            list(act(planned, settings, store, by="the settings"))
        except TwinshoreError as error:
            yield _unmet(topic, error.message)  # its hint is for a command


def _unmet(topic: str, why: str) -> str:
    return f"topic {topic} does not get its protection of the settings: {why}"


def unmet_sections(settings: Settings) -> Iterator[str]:
    """Yields which of the settings' levels are not in force, and why."""
    if not (sections := settings.of(SECTION)):
        return
    with open_or_temporary(settings) as store:
        settings = settings.with_links(load_links(settings, store).links)
        known = _read_known(settings, store)
    for pattern in sections:
        if not any(topic == pattern or re.fullmatch(pattern, topic) for topic in known.twins):
            yield f'[protection."{pattern}"]: no topic that has a twin has such a name'
    for topic in sorted(known.twins.keys() - known.levels.keys()):
        if (wanted := seed_of(topic, settings)) is None:
            continue
        try:
            _plan({topic: wanted}, known, settings, even_weak=False)
            yield _unmet(topic, "a mirror must run, and the twin be nearly level")
        except TwinshoreError as error:
            yield _unmet(topic, error.message)


def _matched(patterns: Sequence[str], known: Iterable[str], missing: str) -> list[str]:
    found: set[str] = set()
    for pattern in patterns:
        ours = {topic for topic in known if topic == pattern or re.fullmatch(pattern, topic)}
        if not ours:
            raise ConfigError(missing, topic=pattern, near=did_you_mean(pattern, sorted(known)))
        found |= ours
    return sorted(found)


def _check_twin(topic: str, links: Sequence[Link]) -> Link:
    """Returns the twin's link. RefusedError where no twin, or not one alone, can confirm writes."""
    if not links:
        raise RefusedError("replication.protection-no-twin", topic=topic)
    if len(links) > 1:
        targets = join_names(sorted(link.target for link in links), NAMED_MAX)
        raise RefusedError("replication.protection-several-twins", topic=topic, clusters=targets)
    (link,) = links
    if link.twin_of(topic) != topic or link.mode is not OffsetMode.EXACT or link.queue.fresh:
        raise RefusedError("replication.protection-not-exact", topic=topic, link=link.name)
    return link


def _weakness(topic: str, cluster: str, settings: Settings) -> str:
    """Returns why the loss of one broker may lose records there; empty if it may not."""
    with closing(KafkaCluster(settings.cluster(cluster), patience_s=ASK_TIMEOUT_S, call_s=ASK_TIMEOUT_S)) as kafka:
        partitions = kafka.metadata([topic], refresh=True).topics[topic].partitions
        found = kafka.admin.topic_settings([topic]).get(topic, {})
    replicas = min(len(one.replicas) for one in partitions)
    in_sync = found["min.insync.replicas"].value if "min.insync.replicas" in found else None
    unclean = found["unclean.leader.election.enable"].value if "unclean.leader.election.enable" in found else None
    reasons = [
        f"it has {replicas} replicas, {REPLICAS_MIN} are needed" if replicas < REPLICAS_MIN else "",
        f"min.insync.replicas is {in_sync}, {IN_SYNC_MIN} is needed" if int(in_sync or 1) < IN_SYNC_MIN else "",
        "unclean.leader.election.enable is true" if unclean == "true" else "",
    ]
    return "; ".join(filter(None, reasons))


def act(plan: Plan[ProtectStep], settings: Settings, store: Store, *, by: str) -> Iterator[ProtectStep]:
    """Executes the steps: each cluster is told, and the change goes into the audit. RefusedError if a cluster that must
    have a higher level did not take it, or another command came between.
    """
    with ExitStack() as opened:
        topics, made = {}, set[str]()
        for name, cluster in settings.clusters.items():
            kafka = KafkaCluster(cluster, patience_s=ASK_TIMEOUT_S, call_s=ASK_TIMEOUT_S)
            opened.callback(kafka.close)
            topics[name] = ProtectionTopic(kafka), GatesTopic(kafka)
        for step in plan.steps:
            line = level_line(step.topic, step.protection)
            failed, between = {}, step.protection
            for name, (protection, gates) in topics.items():
                try:
                    if name not in made:
                        protection.make()
                        gates.make()
                        made.add(name)
                    protection.say([line])
                    between = max(between, protection.read().levels.get(step.topic, between), key=TopicProtection.rank)
                except KafkaError as error:
                    failed[name] = str(error)
            outcome = f"by {by}" if not failed else f"by {by}; not taken by {join_names(list(failed), NAMED_MAX)}"
            outcome += "; another command came between" * (between != step.protection)
            change = "protection", step.topic, str(step.before), str(step.protection.level)
            store.audit.add([AuditRow(wall_ms(), step.link, *change, outcome, by, step.topic)])
            if failed and (step.is_higher or len(failed) == len(topics)):
                clusters = join_names([f"{name}: {why}" for name, why in failed.items()], NAMED_MAX)
                raise RefusedError("replication.protection-away", clusters=clusters, level=step.protection.level)
            if between != step.protection:
                for protection, _ in topics.values():
                    with suppress(KafkaError):  # compaction keeps the last line, which is ours else
                        protection.say([level_line(step.topic, between)] * (between.number < NEWER_NUMBER))
                raise RefusedError("replication.protection-between", topic=step.topic, level=between.level)
            yield step
