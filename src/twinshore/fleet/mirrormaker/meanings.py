"""What each property of MirrorMaker 2 becomes, or why it has no counterpart: one table, looked up by name."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple


class Fate(StrEnum):
    """BECAME: the proposal holds it. NEEDLESS: nothing is lost. DIFFERS: look at this before you move."""

    BECAME = "became"
    NEEDLESS = "needless"
    DIFFERS = "differs"
    UNKNOWN = "unknown"


class Meaning(NamedTuple):
    fate: Fate
    sentence: str


_OFFSETS = "exact twins need none; mapped topics have an exact map: `twinshore mirror extents`"
_BYTES = "records cross as the bytes they are; nothing is decoded"
_CLIENTS = "no Kafka client stands in between; [mirror] has the bounds of fetching and sending"
_PROCESS = "belongs to Connect's own process"
_SOON = "Twinshore looks every few seconds: [mirror] refresh_s, and every_s of the link's section follow"
_CUSTOM = "a class of your own: say the same with the link's topics, exclude and control"

# Properties of a link, also written without a link for all of them.
OF_LINKS: dict[str, Meaning] = {
    "enabled": Meaning(Fate.BECAME, "the link is proposed"),
    "topics": Meaning(Fate.BECAME, "topics"),
    "topics.exclude": Meaning(Fate.BECAME, "exclude"),
    "topics.blacklist": Meaning(Fate.BECAME, "exclude"),
    "groups": Meaning(Fate.BECAME, "groups in the section control"),
    "groups.exclude": Meaning(Fate.BECAME, "exclude_groups in the section control"),
    "groups.blacklist": Meaning(Fate.BECAME, "exclude_groups in the section control"),
    "replication.factor": Meaning(Fate.BECAME, "replication_factor"),
    "replication.policy.class": Meaning(Fate.BECAME, "naming"),
    "replication.policy.separator": Meaning(Fate.BECAME, "naming: a dot, as Twinshore writes it"),
    "sync.topic.acls.enabled": Meaning(Fate.BECAME, "acls in the section follow"),
    "sync.topic.configs.enabled": Meaning(Fate.BECAME, "settings_exclude in the section follow"),
    "config.properties.exclude": Meaning(Fate.BECAME, "settings_exclude in the section follow"),
    "config.properties.blacklist": Meaning(Fate.BECAME, "settings_exclude in the section follow"),
    "use.defaults.from": Meaning(
        Fate.DIFFERS, "a setting that follows has the value in force on the source, from topic or broker"
    ),
    "use.incremental.alter.configs": Meaning(Fate.NEEDLESS, "settings are always changed one by one"),
    "sync.group.offsets.enabled": Meaning(Fate.BECAME, "enabled in the section groups, which is on unless it is false"),
    "sync.group.offsets.interval.seconds": Meaning(
        Fate.NEEDLESS, "groups follow once a second, or as every_s in the section groups says"
    ),
    "emit.checkpoints.enabled": Meaning(Fate.NEEDLESS, _OFFSETS),
    "emit.checkpoints.interval.seconds": Meaning(Fate.NEEDLESS, _OFFSETS),
    "emit.offset-syncs.enabled": Meaning(Fate.NEEDLESS, _OFFSETS),
    "offset.lag.max": Meaning(Fate.NEEDLESS, _OFFSETS),
    "offset-syncs.topic.location": Meaning(Fate.NEEDLESS, _OFFSETS),
    "offset-syncs.topic.replication.factor": Meaning(Fate.NEEDLESS, _OFFSETS),
    "checkpoints.topic.replication.factor": Meaning(Fate.NEEDLESS, _OFFSETS),
    "emit.heartbeats.enabled": Meaning(Fate.NEEDLESS, "each link says by itself that it runs"),
    "emit.heartbeats.interval.seconds": Meaning(Fate.NEEDLESS, "each link says by itself that it runs"),
    "heartbeats.topic.replication.factor": Meaning(Fate.NEEDLESS, "each link says by itself that it runs"),
    "heartbeats.replication.enabled": Meaning(Fate.NEEDLESS, "each link says by itself that it runs"),
    "refresh.topics.enabled": Meaning(Fate.DIFFERS, "new topics that the filters admit are always found"),
    "refresh.topics.interval.seconds": Meaning(Fate.NEEDLESS, _SOON),
    "refresh.groups.enabled": Meaning(Fate.NEEDLESS, _SOON),
    "refresh.groups.interval.seconds": Meaning(Fate.NEEDLESS, _SOON),
    "sync.topic.configs.interval.seconds": Meaning(Fate.NEEDLESS, _SOON),
    "sync.topic.acls.interval.seconds": Meaning(Fate.NEEDLESS, _SOON),
    "tasks.max": Meaning(Fate.NEEDLESS, "lanes in [mirror], chosen from the machine's cores"),
    "exactly.once.source.support": Meaning(Fate.NEEDLESS, "a batch lands at its own offset once or not at all"),
    "exactly.once.support": Meaning(Fate.NEEDLESS, "a batch lands at its own offset once or not at all"),
    "transaction.boundary": Meaning(Fate.NEEDLESS, "a batch lands at its own offset once or not at all"),
    "consumer.poll.timeout.ms": Meaning(Fate.NEEDLESS, _CLIENTS),
    "consumer.isolation.level": Meaning(Fate.NEEDLESS, "only what is committed on the source crosses"),
    "consumer.auto.offset.reset": Meaning(
        Fate.DIFFERS, "a twin begins where its source's log begins, whatever a consumer would do"
    ),
    "add.source.alias.to.metrics": Meaning(Fate.NEEDLESS, "every metric carries the link's name"),
    "provenance.header.enable": Meaning(Fate.DIFFERS, f"{_BYTES}, so no header is added"),
    "transforms": Meaning(
        Fate.DIFFERS, f"{_BYTES}: a link that transforms cannot be exact; leave its topics to MirrorMaker"
    ),
    "predicates": Meaning(Fate.DIFFERS, f"{_BYTES}: see transforms"),
    "topic.filter.class": Meaning(Fate.DIFFERS, _CUSTOM),
    "group.filter.class": Meaning(Fate.DIFFERS, _CUSTOM),
    "config.property.filter.class": Meaning(Fate.DIFFERS, _CUSTOM),
    "forwarding.admin.class": Meaning(Fate.DIFFERS, "topics are made and changed over Kafka's own protocol alone"),
    "key.converter": Meaning(Fate.NEEDLESS, _BYTES),
    "value.converter": Meaning(Fate.NEEDLESS, _BYTES),
    "header.converter": Meaning(Fate.NEEDLESS, _BYTES),
}
# Properties of one cluster, written after its alias; those of a login become its section security.
OF_CLUSTERS: dict[str, Meaning] = {
    "bootstrap.servers": Meaning(Fate.BECAME, "bootstrap"),
    "security.protocol": Meaning(Fate.BECAME, "tls and sasl in the section security"),
    "sasl.mechanism": Meaning(Fate.BECAME, "sasl in the section security"),
    "sasl.jaas.config": Meaning(Fate.BECAME, "username in the section security; the password is for you to place"),
    "sasl.oauthbearer.token.endpoint.url": Meaning(Fate.BECAME, "token_url in the section security"),
    "sasl.login.callback.handler.class": Meaning(Fate.NEEDLESS, "tokens are fetched from token_url"),
    "sasl.client.callback.handler.class": Meaning(Fate.DIFFERS, "a class of your own: use token_file for its token"),
    "ssl.truststore.location": Meaning(Fate.BECAME, "ca_file in the section security"),
    "ssl.truststore.password": Meaning(Fate.NEEDLESS, "a PEM file of authorities has no password"),
    "ssl.truststore.type": Meaning(Fate.BECAME, "ca_file is PEM"),
    "ssl.truststore.certificates": Meaning(
        Fate.DIFFERS, "write these certificates to a PEM file and name it as ca_file"
    ),
    "ssl.keystore.location": Meaning(Fate.BECAME, "cert_file and key_file in the section security"),
    "ssl.keystore.password": Meaning(Fate.NEEDLESS, "a PEM file of certificates has no password"),
    "ssl.keystore.type": Meaning(Fate.BECAME, "cert_file and key_file are PEM"),
    "ssl.keystore.key": Meaning(Fate.DIFFERS, "write this key to a PEM file and name it as key_file"),
    "ssl.keystore.certificate.chain": Meaning(
        Fate.DIFFERS, "write these certificates to a PEM file and name it as cert_file"
    ),
    "ssl.key.password": Meaning(Fate.BECAME, "key_password_env in the section security"),
    "ssl.endpoint.identification.algorithm": Meaning(Fate.BECAME, "check_hostname in the section security"),
    "ssl.protocol": Meaning(Fate.NEEDLESS, "the newest TLS that both sides know is spoken"),
    "ssl.enabled.protocols": Meaning(Fate.NEEDLESS, "the newest TLS that both sides know is spoken"),
    "config.providers": Meaning(Fate.DIFFERS, "secrets come from environment variables or files: *_env, *_file"),
    "group.id": Meaning(Fate.NEEDLESS, _PROCESS),
    "client.id": Meaning(Fate.NEEDLESS, "brokers see clients named twinshore"),
}
# Of the process, whatever stands before.
PATTERNS: tuple[tuple[re.Pattern[str], Meaning], ...] = (
    (re.compile(r"clusters"), Meaning(Fate.BECAME, "one section for each cluster")),
    (
        re.compile(r"(.*\.)?transforms\..*|(.*\.)?predicates\..*"),
        Meaning(Fate.DIFFERS, f"{_BYTES}: see transforms"),
    ),
    (re.compile(r".*consumer\.auto\.offset\.reset"), OF_LINKS["consumer.auto.offset.reset"]),
    (re.compile(r".*consumer\.isolation\.level"), OF_LINKS["consumer.isolation.level"]),
    (re.compile(r".*(key|value|header)\.converter\..*"), Meaning(Fate.NEEDLESS, _BYTES)),
    (re.compile(r"(.*\.)?(consumer|producer|admin)\..*"), Meaning(Fate.NEEDLESS, _CLIENTS)),
    (re.compile(r"(.*\.)?(config|offset|status)\.storage\..*"), Meaning(Fate.NEEDLESS, _PROCESS)),
    (re.compile(r"(.*\.)?config\.providers\..*"), OF_CLUSTERS["config.providers"]),
    (re.compile(r"(.*\.)?(metric\.reporters|metrics\..*)"), Meaning(Fate.NEEDLESS, "docs/metrics.md has the metrics")),
    (
        re.compile(r"dedicated\.mode\..*|rest\..*|listeners.*|plugin\..*|name|topic\.creation\..*|errors\..*"),
        Meaning(Fate.NEEDLESS, _PROCESS),
    ),
    (
        re.compile(r"(.*\.)?(offset\.flush\..*|task\..*|rebalance\..*|scheduled\..*|access\.control\..*|worker\..*)"),
        Meaning(Fate.NEEDLESS, _PROCESS),
    ),
)


def by_pattern(key: str) -> Meaning | None:
    """The meaning of a property that belongs to neither a link nor a cluster."""
    return next((meaning for pattern, meaning in PATTERNS if pattern.fullmatch(key)), None)
