"""Basic values: cluster, link, partition, offset run, plan, and what operators may change on a running link.

An operation is a module of the package that it concerns. The request is a frozen value. `plan` reads and decides, and
changes nothing; `act` executes the plan and yields each step once done. The caller shows the sentences.

Producer epochs fence links off topics that change homes. A link writes with one producer id, in the sum of the *link's
epoch*, given at its start, and the *twin's epoch*: the term of the home that a switch gave the topic, otherwise 0. The
*fence*, one above, shuts the link out of that twin for good. The home's next term belongs to the reverse link, so this
link's next term is at least two higher, and later than each fence.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Generic, NamedTuple, NewType, Protocol, TypeVar

from twinshore.config.declaration import setting
from twinshore.config.errors import ConfigError, TwinshoreError
from twinshore.config.frozen import HEARTBEATS, NOTES_TOPICS

PRIORITY_DEFAULT = 10
PRIORITY_MAX = 100


@dataclass(frozen=True, slots=True)
class LinkControl:
    """What holds until the store says otherwise; changes while the mirror runs. Besides: `topic_throttles`, bytes per
    second, and `priorities`, 1 to 100, both tables from expression to number; the first that matches counts.
    """

    throttle_bytes_s: int = setting(0, "maximum bytes per second of the link; 0: no limit", low=0, high=2**50)
    paused: bool = setting(False, "pause the link")
    paused_topics: tuple[str, ...] = setting((), "paused topics: regular expressions that match the whole name")
    groups: tuple[str, ...] = setting(
        (".*",), "consumer groups whose offsets are synced: regular expressions that match the whole name"
    )
    exclude_groups: tuple[str, ...] = setting((), "consumer groups to exclude; wins over `groups`")
    topic_throttles: tuple[tuple[str, int], ...] = ()
    priorities: tuple[tuple[str, int], ...] = ()

    def pauses(self, topic: str) -> bool:
        """Whether the topic or its link is paused."""
        return self.paused or any(re.fullmatch(pattern, topic) for pattern in self.paused_topics)

    def admits_group(self, group: str) -> bool:
        """Whether the consumer group belongs to the link. Exclusions win."""
        if any(re.fullmatch(pattern, group) for pattern in self.exclude_groups):
            return False
        return any(re.fullmatch(pattern, group) for pattern in self.groups)

    def throttle_of(self, topic: str) -> int:
        """Bytes per second for this topic alone; 0: no limit."""
        return first_match(self.topic_throttles, topic, 0)

    def priority_of(self, topic: str) -> int:
        """The topic's weight when capacity is short."""
        return first_match(self.priorities, topic, PRIORITY_DEFAULT)


def is_loopback(host: str) -> bool:
    """Whether this address or name is of this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def first_match(pairs: tuple[tuple[str, int], ...], topic: str, default: int) -> int:
    """The number of the first pattern that matches the whole name."""
    return next((number for pattern, number in pairs if re.fullmatch(pattern, topic)), default)


DEFAULT_CONTROL = LinkControl()

SourceOffset = NewType("SourceOffset", int)
TargetOffset = NewType("TargetOffset", int)


@dataclass(frozen=True, slots=True)
class Secret:
    """Where a secret is kept, never the secret itself: an environment variable or a file, read at each use."""

    env: str = ""
    file: str = ""

    def read(self) -> str:
        """The current secret, so that the next connection uses a rotated password. Raises ConfigError if unreadable."""
        if self.env:
            value = os.environ.get(self.env)
            if value is None:
                raise ConfigError("config.secret-not-set", variable=self.env)
            return value
        if self.file:
            try:
                return Path(self.file).read_text(encoding="utf-8").strip()
            except OSError as error:
                raise ConfigError("config.unreadable-secret", path=self.file, cause=error.strerror) from error
            except UnicodeDecodeError:
                # That error would carry the secret's bytes.
                raise ConfigError("config.unreadable-secret", path=self.file, cause="it is not UTF-8") from None
        return ""

    def __bool__(self) -> bool:
        return bool(self.env or self.file)


class SaslMechanism(StrEnum):
    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


@dataclass(frozen=True, slots=True)
class Security:
    """How to connect to a cluster; by default PLAINTEXT."""

    tls: bool = False
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    key_password: Secret = Secret()
    check_hostname: bool = True
    sasl: SaslMechanism | None = None
    username: str = ""
    password: Secret = Secret()
    token_url: str = ""
    token_file: str = ""
    token_scope: str = ""

    @property
    def protocol(self) -> str:
        """Kafka's name, as in security.protocol."""
        if self.sasl:
            return "SASL_SSL" if self.tls else "SASL_PLAINTEXT"
        return "SSL" if self.tls else "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class Cluster:
    name: str
    bootstrap: tuple[str, ...]
    security: Security = Security()
    site: str = ""


class DeletedTopicPolicy(StrEnum):
    KEEP = "keep"
    ARCHIVE = "archive"
    DELETE = "delete"


class RecreatedTopicPolicy(StrEnum):
    STOP = "stop"
    RECREATE = "recreate"


@dataclass(frozen=True, slots=True)
class SyncRules:
    """What a link syncs besides records."""

    every_s: float = setting(5.0, "how often both clusters are compared", low=0.5, high=3600)
    settings_exclude: tuple[str, ...] = setting(
        (), "topic configs that are not synced: regular expressions that match the whole name"
    )
    acls: bool = setting(True, "sync ACLs of mirrored topics, if both clusters have an authorizer")
    group_acls: bool = setting(False, "also sync ACLs of consumer groups that the link admits by name")
    wide_group_acls: bool = setting(
        False, "with `group_acls`: also sync prefixed and `*` ACLs, which may match groups of the target itself"
    )
    principal: str = setting(
        "",
        "the mirror's principal on the target, as `User:mirror`; empty: from its SASL username. ACLs that would"
        " deny it are not written",
    )
    deleted: DeletedTopicPolicy = setting(
        DeletedTopicPolicy.KEEP, "what becomes of a twin whose source topic is deleted: `keep`, `archive` or `delete`"
    )
    recreated: RecreatedTopicPolicy = setting(
        RecreatedTopicPolicy.STOP,
        "what becomes of a twin whose source topic was recreated: `stop`, or `recreate` with a new twin",
    )
    delete_after_s: float = setting(
        3600.0, "how long a twin is kept before `deleted` or `recreated` deletes it", low=0, high=31536000
    )
    quotas: bool = setting(False, "sync client quotas of users and client ids")
    scram_users: bool = setting(
        False,
        'sync SCRAM users; passwords come from `[links."SOURCE->TARGET".follow.users.NAME]`, see docs/topics-follow.md',
    )
    users: tuple[tuple[str, Secret], ...] = ()  # SCRAM users with known secrets, and where those are kept


@dataclass(frozen=True, slots=True)
class GroupRules:
    """How committed offsets of consumer groups follow a link. Which groups: `groups` and `exclude_groups` of its
    control. Besides: `outputs`, a table from an expression for groups to a list of expressions for topics that their
    readers write to, in which `{group}` stands for the group's name: their offsets wait for the replication of what was
    written there.
    """

    enabled: bool = setting(True, "sync committed offsets of consumer groups")
    every_s: float = setting(1.0, "how often the groups' offsets are read on both clusters", low=0.1, high=3600)
    resets: bool = setting(
        True,
        "a group whose offsets are reset backwards on the source is reset on the target too; false: never backwards",
    )
    back: bool | None = setting(
        None,
        "offsets that a group commits on the target are synced to the source, if the group has no members there."
        " Unset: on where a link leads the other way",
    )
    verify_s: float = setting(60.0, "how often a group without changes is compared again", low=1, high=86400)
    marks: bool = setting(
        True,
        "mark offsets that the link commits, in the commit's metadata, where the group's consumers leave it"
        " empty; false: also move offsets of readers at the target without membership; see docs/groups.md",
    )
    # Expressions for groups, each with expressions for the topics that their readers write to.
    outputs: tuple[tuple[str, tuple[str, ...]], ...] = ()


class QueuePolicy(StrEnum):
    """What happens to records that wait for a slow target: they stay in the source's log, or the oldest are dropped."""

    KEEP = "keep"
    DROP_OLDEST = "fresh"


@dataclass(frozen=True, slots=True)
class QueueRules:
    """Memory for a broadcast's slow target: at most `high_bytes`.

    A fresh queue drops the oldest records beyond that or `parts_max`, down to `low_bytes` and half of the parts, and
    records older than `max_age_s`, if set. `transactions`: transactions too, which may then be replicated in part.
    """

    policy: QueuePolicy = QueuePolicy.KEEP
    high_bytes: int = 64 << 20
    low_bytes: int = 32 << 20
    parts_max: int = 10_000
    max_age_s: float = 0.0
    transactions: bool = False

    @property
    def fresh(self) -> bool:
        return self.policy is QueuePolicy.DROP_OLDEST

    @property
    def sentence(self) -> str:
        """What the queue drops, and the effect on twins; empty if it drops nothing."""
        if not self.fresh:
            return ""
        age = f" and what is older than {self.max_age_s:g} s" if self.max_age_s else ""
        return f"its queue is fresh: beyond {self.high_bytes >> 20:,} MB the oldest goes{age}; new twins are mapped"


class TwinNaming(StrEnum):
    """A twin's name: its source topic's, or prefixed with the source cluster's name."""

    SAME = "same"
    PREFIX = "prefix"


class OffsetMode(StrEnum):
    """Whether a topic that already holds data on the target may be continued, at offsets of its own."""

    EXACT = "exact"
    MAPPED = "mapped"


class MappedStart(StrEnum):
    """Where such a topic starts in the source: where MirrorMaker 2 stopped, at the log start, or at the end."""

    MIRRORMAKER = "mirrormaker"
    START = "start"
    END = "end"


@dataclass(frozen=True, slots=True)
class Link:
    """A one-way mirror `source->target` for the topics its filters admit.

    `chain`: also replicate topics that other links brought to the source. `broadcast`: links of one source that name
    the same one read together.
    """

    source: str
    target: str
    topics: tuple[str, ...] = (".*",)
    exclude: tuple[str, ...] = ()
    replication_factor: int = 0
    topic_settings: tuple[tuple[str, str], ...] = field(default=())
    follow: SyncRules = SyncRules()
    naming: TwinNaming = TwinNaming.SAME
    chain: bool = False
    control: LinkControl = DEFAULT_CONTROL
    groups: GroupRules = GroupRules()
    mode: OffsetMode = OffsetMode.EXACT
    mapped_from: MappedStart = MappedStart.MIRRORMAKER
    broadcast: str = ""
    queue: QueueRules = QueueRules()

    @property
    def name(self) -> str:
        return f"{self.source}->{self.target}"

    def twin_of(self, topic: str) -> str:
        if self.naming is TwinNaming.PREFIX or is_heartbeats_topic(topic):
            return f"{self.source}.{topic}"
        return topic


def is_heartbeats_topic(topic: str) -> bool:
    """Whether it holds a cluster's heartbeats, its own or those that came from others."""
    return topic == HEARTBEATS or topic.endswith(f".{HEARTBEATS}")


def is_internal_topic(topic: str) -> bool:
    """Whether it is one of Twinshore's own topics."""
    return topic in NOTES_TOPICS or is_heartbeats_topic(topic)


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


SEQUENCE_SPAN = 2**31


class OffsetRun(NamedTuple):
    """`length` consecutive records of a mapped twin, from offset `source` on the source and `target` on the twin.

    `sequence`: the link's producer sequence of the first record. Length 0: no record yet; the next one goes to `target`
    or beyond.
    """

    source: SourceOffset
    target: TargetOffset
    length: int
    sequence: int


def source_end(offset_run: OffsetRun) -> SourceOffset:
    """The source offset after the last record."""
    return SourceOffset(offset_run.source + offset_run.length)


def target_end(offset_run: OffsetRun) -> TargetOffset:
    """The twin's offset after the last record."""
    return TargetOffset(offset_run.target + offset_run.length)


def drop_first_records(offset_run: OffsetRun, count: int) -> OffsetRun:
    source, target = SourceOffset(offset_run.source + count), TargetOffset(offset_run.target + count)
    return OffsetRun(source, target, offset_run.length - count, (offset_run.sequence + count) % SEQUENCE_SPAN)


def join_runs(first: OffsetRun, second: OffsetRun) -> OffsetRun | None:
    """Both as one if the second directly follows the first on either side, else None."""
    if source_end(first) == second.source and target_end(first) == second.target:
        return first._replace(length=first.length + second.length)
    return None


def append_runs(known: OffsetRun | None, fresh: Iterable[OffsetRun]) -> list[OffsetRun]:
    """Joins new runs, in order, to the last known one. A run within known offsets is a repetition."""
    standing: list[OffsetRun] = [] if known is None else [known]
    for one in fresh:
        last = standing[-1] if standing else None
        if last is not None and source_end(last) > one.source:
            one = drop_first_records(one, min(one.length, source_end(last) - one.source))
        if not one.length and standing:
            continue
        together = join_runs(last, one) if last is not None else None
        if together is not None:
            standing[-1] = together
        elif last is not None and not last.length and last.source == one.source:
            standing[-1] = one
        else:
            standing.append(one)
    return standing


class PlanStep(Protocol):
    def sentence(self, *, done: bool) -> str:
        """The change, as done or as planned."""
        ...


# What names the thing that a step changes.
STEP_NAMES = ("link", "pair", "cluster", "topic", "partition", "group", "switch", "home", "old", "new", "name")
_OBSERVED = re.compile(r"(?<![\w.\-])\d[\d,.]*(?![\w\-])")


def decision_of(step: PlanStep) -> str:
    names = [f"{name} {getattr(step, name)}" for name in STEP_NAMES if getattr(step, name, "") not in ("", None)]
    return f"{', '.join(names)}: {_OBSERVED.sub('#', step.sentence(done=False))}"


S_co = TypeVar("S_co", bound=PlanStep, covariant=True)


@dataclass(frozen=True, slots=True)
class Plan(Generic[S_co]):
    """`shown`: what the operator must know first. `remarks`: what else is worth knowing. `refused`: why requested steps
    are missing; raised by the caller at the end.
    """

    steps: tuple[S_co, ...] = ()
    shown: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    refusal: TwinshoreError | None = None

    def decisions(self) -> tuple[str, ...]:
        """Returns what somebody agrees to: what the steps do, and to what. Offsets and counts are only observed."""
        return tuple(map(decision_of, self.steps))


WRITE_PAUSE_S = 10.0  # the longest pause of writers
TOPICS_PER_WAVE = 50  # topics that move at once when all topics of a link do

# The term of a home that was observed, not decided.
FIRST_TERM = 1
# A producer epoch has 15 bits, for the sum of a term, the link's epoch and the fence.
TERM_MAX = 30_000


def next_term(term: int) -> int:
    """The next term; a home whose record has no term (0) is in its first."""
    return max(term, FIRST_TERM) + 1


def twin_epoch(term: int) -> int:
    """The epoch of the twin that a switch in this term makes."""
    return term


def written_epoch(link_epoch: int, twin: int) -> int:
    """The epoch of the link's records and markers on this twin."""
    return link_epoch + twin


def fence_epoch(written: int) -> int:
    """The epoch of the marker that shuts out writers in epoch `written`."""
    return written + 1
