"""What exists: cluster, link, partition. Frozen values; equal when their fields are."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NewType

from twinshore.fleet.control import UNCONTROLLED, Control
from twinshore.fleet.declaring import setting
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
    """What follows a link besides records."""

    every_s: float = setting(5.0, "how often both clusters are compared", low=0.5, high=3600)
    settings_exclude: tuple[str, ...] = setting(
        (), "topic settings that do not follow: regular expressions that match the whole name"
    )
    acls: bool = setting(True, "ACLs of mirrored topics follow, where both clusters have an authorizer")
    group_acls: bool = setting(False, "ACLs of consumer groups follow too, of those that the link admits, by name")
    wide_group_acls: bool = setting(
        False, "with `group_acls`: rules for many groups (prefixed or `*`) too, also over groups of the target's own"
    )
    principal: str = setting(
        "",
        "the mirror's user as the target sees it, like `User:mirror`; empty: by its SASL username. No ACL that"
        " shuts it out is written",
    )
    deleted: Deleted = setting(Deleted.KEEP, "a twin whose source topic is deleted: `keep`, `archive` or `delete` it")
    recreated: Recreated = setting(
        Recreated.STOP,
        "a twin whose source topic was deleted and made again: `stop`, or delete the twin and `begin again`",
    )
    delete_after_s: float = setting(
        3600.0, "how long a twin is kept before one of these two policies deletes it", low=0, high=31536000
    )
    quotas: bool = setting(False, "client quotas of users and client ids follow")
    scram_users: bool = setting(False, "SCRAM users follow as far as they can; see docs/topics-follow.md")
    users: tuple[tuple[str, Secret], ...] = ()  # SCRAM users whose secrets are known, and where those are kept


@dataclass(frozen=True, slots=True)
class GroupRules:
    """How places of consumer groups follow a link. Which groups: `groups` and `exclude_groups` of its control. Besides:
    `outputs`, a table from an expression for groups to a list of expressions for topics that their readers write to,
    in which `{group}` stands for the group's name: their places wait for what was written there to cross.
    """

    enabled: bool = setting(True, "places of consumer groups follow")
    every_s: float = setting(1.0, "how often both clusters are asked where groups stand", low=0.1, high=3600)
    resets: bool = setting(
        True, "a group that is set back on the source is set back on the target; false: never backwards"
    )
    back: bool | None = setting(
        None,
        "a group that reads on at the target finds its place on the source too; for groups without members there. "
        "Unset: where a link leads the other way",
    )
    verify_s: float = setting(
        60.0, "how long until a group on which nothing changes is compared again all the same", low=1, high=86400
    )
    marks: bool = setting(
        True,
        "places that the link commits are marked, where the group's consumers leave no text of their own; "
        "false: readers at the target without membership are moved too; see docs/groups.md",
    )
    # Expressions for groups, each with those for the topics that their readers write to.
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
