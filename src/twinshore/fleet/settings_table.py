"""The one table of settings: name, type, default, meaning, limits.

The reader, its errors and docs/settings.md all come from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar, get_type_hints

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rule:
    """What a setting means and what it may be."""

    meaning: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `default` is None where the setting is required."""

    name: str
    kind: Any
    default: Any
    required: bool
    rule: Rule


def setting(default: T, meaning: str, *, low: float | None = None, high: float | None = None) -> T:
    """Declares a setting with a default inside a section."""
    spec: Any = field(default=default, metadata={"rule": Rule(meaning, low, high)})
    declared: T = spec
    return declared


def required(meaning: str) -> Any:
    """Declares a setting that has no default."""
    return field(metadata={"rule": Rule(meaning)})


def rows(section: type) -> Iterator[Row]:
    """The table's lines of one section, in the order they are written."""
    hints = get_type_hints(section)
    for spec in fields(section):
        rule = spec.metadata.get("rule")
        if isinstance(rule, Rule):
            bare = spec.default is MISSING
            yield Row(spec.name, hints[spec.name], None if bare else spec.default, bare, rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSection:
    """Where Twinshore remembers: leases, positions, receipts, the ledger."""

    url: str = setting(
        "sqlite:///twinshore.db",
        "`sqlite:///file`, `postgresql://user@host/database`, `mysql://user@host/database` or `mariadb://...`;"
        " a password never stands in it. A relative file is relative to the folder of the settings file",
    )
    password_env: str = setting("", "environment variable that holds the database password")
    password_file: str = setting("", "file that holds the database password")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSection:
    """One cluster, by the name that links use."""

    bootstrap: tuple[str, ...] = required("addresses `host:port` to ask first; several, so that one may be down")
    site: str = setting("", "where it stands: region, data centre")


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySection:
    """How to speak to that cluster. Without this section: PLAINTEXT."""

    tls: bool = setting(False, "speak TLS")
    ca_file: str = setting("", "PEM file of the authorities to trust; empty: the system's")
    cert_file: str = setting("", "PEM file with our certificate, for mutual TLS")
    key_file: str = setting("", "PEM file with our key, for mutual TLS")
    key_password_env: str = setting("", "environment variable that holds the key's password")
    key_password_file: str = setting("", "file that holds the key's password")
    check_hostname: bool = setting(True, "the certificate must name the host")
    sasl: str = setting("", "`PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512` or `OAUTHBEARER`; empty: none")
    username: str = setting("", "SASL user; for OAUTHBEARER the client id")
    password_env: str = setting("", "environment variable that holds the SASL password or client secret")
    password_file: str = setting("", "file that holds the SASL password or client secret")
    token_url: str = setting("", "OAUTHBEARER: where tokens are fetched")
    token_file: str = setting("", "OAUTHBEARER: file that holds a token, read anew for each connection")
    token_scope: str = setting("", "OAUTHBEARER: scope to ask for")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSection:
    """One mirror, named `source->target` after two clusters."""

    topics: tuple[str, ...] = setting((".*",), "topics to mirror: regular expressions that match the whole name")
    exclude: tuple[str, ...] = setting(
        ("__.*",), "topics to leave out: the same kind of expressions, stronger than topics"
    )
    replication_factor: int = setting(
        0,
        "copies of each twin partition; 0: the source's, at most as many as the target has brokers",
        low=0,
        high=32767,
    )
    topic_settings: tuple[tuple[str, str], ...] = setting(
        (), "settings given to each twin, as Kafka names them, besides those a twin needs for itself"
    )
    naming: str = setting(
        "same", "what a twin is called: `same` as its source topic, or `prefix`: `east.orders` for orders of east"
    )
    chain: bool = setting(
        False, "also carry topics of the source that are twins themselves; never back to where they have been"
    )
    mode: str = setting(
        "exact",
        "`exact`: a topic that holds foreign data on the target is refused; `mapped`: it is carried on behind them,"
        " with a map of offsets; all other topics are exact in either case",
    )
    mapped_from: str = setting(
        "mirrormaker",
        "where a mapped topic goes on in its source: `mirrormaker`, where MirrorMaker 2 stopped, proven by its records;"
        " `start` or `end` of the source",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlSection:
    """What holds until the store says otherwise, which is changed while the mirror runs. Besides: `topic_throttles`,
    bytes per second, and `priorities`, 1 to 100, both tables from expression to number; the first that matches counts.
    """

    throttle_bytes_s: int = setting(0, "most bytes per second that the link carries; 0: no bound", low=0, high=2**50)
    paused: bool = setting(False, "carry nothing")
    paused_topics: tuple[str, ...] = setting((), "topics not to carry for now: expressions that match the whole name")
    groups: tuple[str, ...] = setting((".*",), "consumer groups that follow: expressions that match the whole name")
    exclude_groups: tuple[str, ...] = setting((), "consumer groups to leave out, stronger than groups")


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowSection:
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
        "whom the target's authorizer takes the mirror for, as `User:mirror`; empty: by its SASL username. No ACL that"
        " shuts it out is written",
    )
    deleted: str = setting("keep", "a twin whose source topic is deleted: `keep`, `archive` or `delete` it")
    recreated: str = setting(
        "stop", "a twin whose source topic was deleted and made again: `stop`, or delete the twin and `begin again`"
    )
    delete_after_s: float = setting(
        3600.0, "how long a twin is kept before one of these two policies deletes it", low=0, high=31536000
    )
    quotas: bool = setting(False, "client quotas of users and client ids follow")
    scram_users: bool = setting(False, "SCRAM users follow as far as they can; see docs/topics-follow.md")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsSection:
    """How places of consumer groups follow a link. Which groups: `groups` and `exclude_groups` of its control. Besides:
    `outputs`, a table from an expression for groups to a list of expressions for topics that their readers write to,
    in which `{group}` stands for the group's name: their places wait for what was written there to cross.
    """

    enabled: bool = setting(True, "places of consumer groups follow")
    every_s: float = setting(1.0, "how often both clusters are asked where groups stand", low=0.1, high=3600)
    resets: bool = setting(
        True, "a group that is set back on the source is set back on the target; false: never backwards"
    )
    back: bool = setting(
        False, "a group that reads on at the target finds its place on the source too; for groups without members there"
    )
    verify_s: float = setting(
        60.0, "how long until a group on which nothing changes is compared again all the same", low=1, high=86400
    )
    marks: bool = setting(
        True,
        "places that the link commits are marked, where the group's consumers leave no text of their own; "
        "false: readers at the target without membership are moved too; see docs/groups.md",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSection:
    """A SCRAM user of the source that the target shall have too: its password cannot be read from a cluster."""

    password_env: str = setting("", "environment variable that holds the user's password")
    password_file: str = setting("", "file that holds the user's password")


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Where the pumps run, and `spark.*` settings passed through as they are."""

    master: str = "local"
    conf: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSettings:
    """How the mirror works. The defaults suit one machine and two clusters."""

    lanes: int = setting(0, "pumps side by side, for each link; 0: one for two cores, at most 8", low=0, high=1024)
    tide_s: float = setting(60.0, "longest run of a lane before the plan is looked at again", low=0.2, high=3600)
    refresh_s: float = setting(2.0, "how often both clusters are asked for new topics and partitions", low=0.1, high=60)
    lease_s: float = setting(
        4.0,
        "a link that has not renewed its lease, or a lane its grant, for so long has lost it; another mirror takes a"
        " link over up to 5 s later, when no request of the one that is gone can be on its way any more",
        low=0.5,
        high=120,
    )
    receipts_s: float = setting(
        0.5,
        "how often a pump hands its receipts to the store, and asks for a longer grant; a third of `lease_s` at most",
        low=0.05,
        high=60,
    )
    fetch_mb: int = setting(8, "most that one fetch request brings", low=1, high=512)
    partition_fetch_kb: int = setting(1024, "most that one partition brings in one fetch request", low=16, high=524288)
    fetch_wait_ms: int = setting(500, "how long a broker may hold a fetch that has nothing to bring", low=0, high=30000)
    inflight_max: int = setting(8, "produce requests on their way per connection", low=1, high=64)
    join_below_kb: int = setting(
        128, "uncompressed neighbouring batches smaller than this are joined; 0: never", low=0, high=1024
    )
    merge_below_bytes: int = setting(
        4096,
        "compressed neighbouring batches smaller than this are unpacked and joined; 0: never",
        low=0,
        high=1048576,
    )
    merge_target_kb: int = setting(512, "joined batches grow to about this size", low=4, high=512)
    produce_timeout_s: float = setting(30.0, "how long a target broker may take to replicate a batch", low=1, high=600)
    heartbeat_s: float = setting(
        1.0, "how often a link writes a heartbeat to `twinshore.heartbeats` on its source; 0: never", low=0, high=3600
    )
    hanging_transaction_s: float = setting(
        900.0, "a source's transaction that holds a twin for longer is told in the ledger", low=1, high=604800
    )
    away_after_s: float = setting(10.0, "a cluster that has not answered for so long is an incident", low=1, high=86400)
    disk_warn_percent: float = setting(
        10.0, "a target's broker with less room on a disk is an incident; 0: disks are not watched", low=0, high=100
    )
    disk_pause_percent: float = setting(
        3.0, "nothing is written to twins on a broker with less room; 0: never", low=0, high=100
    )
    disk_check_s: float = setting(10.0, "how often the target's disks are looked at", low=1, high=3600)
    stop_s: float = setting(10.0, "how long an orderly stop waits for requests on their way", low=0, high=600)
    metrics_address: str = setting("127.0.0.1", "address that serves /metrics and /health")
    metrics_port: int = setting(0, "port that serves /metrics and /health; 0: none", low=0, high=65535)
    metrics_topics_max: int = setting(
        1000, "most topics with series of their own; all count in their links'", low=0, high=1000000
    )
    metrics_partitions_max: int = setting(
        2000, "most partitions with series of their own; all count in their links'", low=0, high=1000000
    )
    ends_s: float = setting(
        2.0, "how often the source's ends are asked for, for lag and recovery point", low=0.1, high=3600
    )
    spark: SparkSettings = SparkSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSection:
    """Spark. Every key that begins with `spark.` is passed through besides."""

    master: str = setting(
        "local", "`local` (embedded), `local[k]`, or a cluster manager: `spark://host:port`, `yarn`, `k8s://...`"
    )
