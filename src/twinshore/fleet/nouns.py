"""What exists: cluster, link, partition. Frozen values; equal when their fields are."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NewType

from twinshore.fleet.control import UNCONTROLLED, Control
from twinshore.fleet.errors import ConfigError

# Where each link says that it runs; crosses under the source's name whatever the naming.
HEARTBEATS = "twinshore.heartbeats"
# Where each target says which of its topics are twins.
TWINS_TOPIC = "twinshore.twins"
# Where each cluster says where topics are at home, and where clients say that they follow it.
HOMES_TOPIC = "twinshore.homes"
FOLLOWERS_TOPIC = "twinshore.followers"
# Where the home of a topic keeps the records that an old home took and never sent.
RESCUED_TOPIC = "twinshore.rescued"
NOTES_TOPICS = (TWINS_TOPIC, HOMES_TOPIC, FOLLOWERS_TOPIC, RESCUED_TOPIC)
# What has a home as topics have: all groups of the clients of proxies. No topic is called so.
GROUPS_HOME = "twinshore.groups"
SourceOffset = NewType("SourceOffset", int)
TargetOffset = NewType("TargetOffset", int)


@dataclass(frozen=True, slots=True)
class Secret:
    """Where a secret is kept, never the secret itself: an environment variable or a file, read anew at each use."""

    env: str = ""
    file: str = ""

    def read(self) -> str:
        """The secret as it stands now, so that a rotated password is taken at the next connection."""
        if self.env:
            value = os.environ.get(self.env)
            if value is None:
                raise ConfigError(f"environment variable {self.env} is not set", hint="it should hold a secret")
            return value
        if self.file:
            try:
                return Path(self.file).read_text(encoding="utf-8").strip()
            except OSError as error:
                raise ConfigError(f"secret file {self.file} cannot be read: {error.strerror}") from error
            except UnicodeDecodeError:
                # That error would carry the secret's bytes.
                raise ConfigError(f"secret file {self.file} cannot be read: it is not UTF-8") from None
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
    """How to speak to a cluster. With no field set: PLAINTEXT."""

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
        """Kafka's own name for it, as in security.protocol."""
        if self.sasl:
            return "SASL_SSL" if self.tls else "SASL_PLAINTEXT"
        return "SSL" if self.tls else "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class Cluster:
    name: str
    bootstrap: tuple[str, ...]
    security: Security = Security()
    site: str = ""


class Deleted(StrEnum):
    """What becomes of a twin whose source topic was deleted."""

    KEEP = "keep"
    ARCHIVE = "archive"
    DELETE = "delete"


class Recreated(StrEnum):
    """What becomes of a twin whose source topic was deleted and made again."""

    STOP = "stop"
    BEGIN_AGAIN = "begin again"


@dataclass(frozen=True, slots=True)
class Follow:
    """What follows a link besides records. `users`: SCRAM users whose secrets are known, and where those are kept."""

    every_s: float = 5.0
    settings_exclude: tuple[str, ...] = ()
    acls: bool = True
    group_acls: bool = False
    wide_group_acls: bool = False
    principal: str = ""
    deleted: Deleted = Deleted.KEEP
    recreated: Recreated = Recreated.STOP
    delete_after_s: float = 3600.0
    quotas: bool = False
    scram_users: bool = False
    users: tuple[tuple[str, Secret], ...] = ()


@dataclass(frozen=True, slots=True)
class GroupRules:
    """How places of consumer groups follow a link. `resets`: backwards too, where the source's group was set back.
    `back`: what a group reads at the target is known at the source too; None: where a link leads
    back. `marks`: places of the link are marked.
    `outputs`: expressions for groups, each with those for the topics that their readers write to."""

    enabled: bool = True
    every_s: float = 1.0
    resets: bool = True
    back: bool | None = None
    verify_s: float = 60.0
    marks: bool = True
    outputs: tuple[tuple[str, tuple[str, ...]], ...] = ()


class QueuePolicy(StrEnum):
    """What becomes of records that wait for a target that is behind: they stay in the source's log, or the oldest are
    dropped."""

    KEEP = "keep"
    FRESH = "fresh"


@dataclass(frozen=True, slots=True)
class QueueRules:
    """What is held in memory for a target of a broadcast that is behind: at most `high_bytes`. A fresh queue drops the
    oldest: beyond that, or more than `parts_max` parts, down to `low_bytes` and half of the parts; and, where
    `max_age_s` says so, what is older. `transactions`: records of transactions too, which may then cross in part."""

    policy: QueuePolicy = QueuePolicy.KEEP
    high_bytes: int = 64 << 20
    low_bytes: int = 32 << 20
    parts_max: int = 10_000
    max_age_s: float = 0.0
    transactions: bool = False

    @property
    def fresh(self) -> bool:
        return self.policy is QueuePolicy.FRESH

    @property
    def sentence(self) -> str:
        """What it drops, and what its twins are then; empty where it drops nothing."""
        if not self.fresh:
            return ""
        age = f" and what is older than {self.max_age_s:g} s" if self.max_age_s else ""
        return f"its queue is fresh: beyond {self.high_bytes >> 20:,} MB the oldest goes{age}; new twins are mapped"


class Naming(StrEnum):
    """What a twin is called: as its source topic, or with the source cluster's name before it."""

    SAME = "same"
    PREFIX = "prefix"


class Mode(StrEnum):
    """Whether a topic that holds data on the target already may be carried on, at offsets of its own."""

    EXACT = "exact"
    MAPPED = "mapped"


class MappedFrom(StrEnum):
    """Where in the source such a topic goes on: where MirrorMaker 2 stopped, at its log start, or at its end."""

    MIRRORMAKER = "mirrormaker"
    START = "start"
    END = "end"


@dataclass(frozen=True, slots=True)
class Link:
    """A one-way mirror `source->target` for the topics its filters admit. `chain`: what other links brought to the
    source goes on to the target too. `broadcast`: links of one source that name the same one read it together."""

    source: str
    target: str
    topics: tuple[str, ...] = (".*",)
    exclude: tuple[str, ...] = ()
    replication_factor: int = 0
    topic_settings: tuple[tuple[str, str], ...] = field(default=())
    follow: Follow = Follow()
    naming: Naming = Naming.SAME
    chain: bool = False
    control: Control = UNCONTROLLED
    groups: GroupRules = GroupRules()
    mode: Mode = Mode.EXACT
    mapped_from: MappedFrom = MappedFrom.MIRRORMAKER
    broadcast: str = ""
    queue: QueueRules = QueueRules()

    @property
    def name(self) -> str:
        return f"{self.source}->{self.target}"

    def twin_of(self, topic: str) -> str:
        """What the topic's twin is called on the target."""
        if self.naming is Naming.PREFIX or is_heartbeats(topic):
            return f"{self.source}.{topic}"
        return topic


def is_heartbeats(topic: str) -> bool:
    """Whether it holds a cluster's heartbeats, its own or those that came from others."""
    return topic == HEARTBEATS or topic.endswith(f".{HEARTBEATS}")


def is_twinshores(topic: str) -> bool:
    """Whether it is one of Twinshore's own topics."""
    return topic in NOTES_TOPICS or is_heartbeats(topic)


@dataclass(frozen=True, slots=True, order=True)
class NamedPartition:
    """A partition as Kafka names it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
