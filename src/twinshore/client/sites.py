"""Sites (clusters as an application sets them), client threads, and queued warnings."""

from __future__ import annotations

import logging
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from twinshore.config.errors import ConfigError, UnsupportedError
from twinshore.config.frozen import CLIENT_SETTINGS_PREFIX, CLUSTER_ID_SETTING
from twinshore.config.model import Cluster, SaslMechanism, Secret, Security
from twinshore.kafka.clock import steady_s
from twinshore.kafka.connection import librdkafka_settings
from twinshore.kafka.pool import parse_address

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
# Whatever else librdkafka reads as none: it takes the digits that a word begins with.
_ANSWERED = re.compile(r"all|-1|[1-9][0-9]*", re.IGNORECASE)
_SAFE = ("ssl.", "sasl.", "security.", "oauth", CLIENT_SETTINGS_PREFIX)
_KNOWN = (
    *("bootstrap.servers", "security.protocol", "sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password"),
    *("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password", CLUSTER_ID_SETTING),
    "ssl.endpoint.identification.algorithm",
)


@dataclass(frozen=True)
class InlineSecret(Secret):
    """A secret that the application passes itself; `repr` never shows the value."""

    value: str = field(default="", repr=False)

    def read(self) -> str:
        return self.value

    def __bool__(self) -> bool:
        return bool(self.value)


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster with client settings. `clients`: further settings of producers and consumers. `cluster_id`: the
    expected id; empty accepts any.
    """

    cluster: Cluster
    clients: Mapping[str, Any] = field(default_factory=dict, repr=False)
    cluster_id: str = ""

    @property
    def name(self) -> str:
        return self.cluster.name

    def settings(self) -> dict[str, Any]:
        """Returns settings for a confluent-kafka client. They hold secrets: never log them."""
        return {**librdkafka_settings(self.cluster), **self.clients}


def sites_of(given: Mapping[str, Mapping[str, Any] | Cluster], shared: Mapping[str, Any]) -> dict[str, Site]:
    """Returns the sites by name; `shared` applies to each. ConfigError for unsupported settings or without
    acknowledgements; UnsupportedError for a transactional producer.
    """
    if not given:
        raise ConfigError("client.no-clusters")
    return {name: _site(name, one, shared) for name, one in given.items()}


def check_topic_names(topics: Iterable[str]) -> tuple[str, ...]:
    """TypeError for a single string, whose letters would count as names; ConfigError for an impossible pattern."""
    if isinstance(topics, str):
        raise TypeError(f"topics are given as a list of names, not as {topics!r}")
    named = tuple(topics)
    if not named:
        raise ConfigError("client.no-topics")
    for one in named:
        if "*" in one[:-1]:
            raise ConfigError("client.star-not-last", topic=one)
    return named


def check_group_id(site: Site) -> None:
    """ConfigError where `group.id` is not set."""
    if not site.settings().get("group.id"):
        raise ConfigError("client.setting-missing", cluster=site.name, key="group.id")


def _site(name: str, given: Mapping[str, Any] | Cluster, shared: Mapping[str, Any]) -> Site:
    every = dict(shared) if isinstance(given, Cluster) else {**shared, **given}
    if "transactional.id" in every:
        raise UnsupportedError("client.transactional", cluster=name)
    _must_be_answered(name, every)
    if isinstance(given, Cluster):
        return Site(given, every)
    clients = {key: value for key, value in every.items() if key not in _KNOWN}
    if strange := sorted(key for key in clients if key.startswith(_SAFE)):
        raise ConfigError("client.setting-unknown", cluster=name, key=strange[0], known=", ".join(sorted(_KNOWN)))
    told = every.get("bootstrap.servers", "")
    if not isinstance(told, str):
        raise ConfigError("client.bootstrap-invalid", cluster=name)
    bootstrap = tuple(one.strip() for one in told.split(",") if one.strip())
    if not bootstrap:
        raise ConfigError("client.setting-missing", cluster=name, key="bootstrap.servers")
    for one in bootstrap:
        parse_address(one, name)
    cluster = Cluster(name, bootstrap, _security(name, every))
    return Site(cluster, clients, str(every.get(CLUSTER_ID_SETTING, "")))


def _must_be_answered(name: str, every: Mapping[str, Any]) -> None:
    """Refuse acks=0: a switch would be told that no call is unanswered while records still arrive."""
    for key, value in acks_of(every):
        if not _ANSWERED.fullmatch(value):
            raise ConfigError("client.acks-needed", cluster=name, key=key, value=value)


def acks_of(every: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the settings that say how many brokers acknowledge a record."""
    of_topics = every.get("default.topic.config")
    for some in (every, of_topics if isinstance(of_topics, Mapping) else {}):
        yield from ((key, str(some[key])) for key in ("acks", "request.required.acks") if key in some)


def _security(name: str, given: Mapping[str, Any]) -> Security:
    protocol = str(given.get("security.protocol", "PLAINTEXT")).upper()
    if protocol not in PROTOCOLS:
        raise ConfigError("client.protocol-unknown", cluster=name, protocol=protocol, known=", ".join(PROTOCOLS))
    sasl = _mechanism(name, given) if protocol.startswith("SASL") else None
    return Security(
        tls=protocol.endswith("SSL"),
        ca_file=str(given.get("ssl.ca.location", "")),
        cert_file=str(given.get("ssl.certificate.location", "")),
        key_file=str(given.get("ssl.key.location", "")),
        key_password=InlineSecret(value=str(given.get("ssl.key.password", ""))),
        check_hostname=str(given.get("ssl.endpoint.identification.algorithm", "https")) != "none",
        sasl=sasl,
        username=str(given.get("sasl.username", "")),
        password=InlineSecret(value=str(given.get("sasl.password", ""))),
    )


def _mechanism(name: str, given: Mapping[str, Any]) -> SaslMechanism:
    known = (SaslMechanism.PLAIN, SaslMechanism.SCRAM_SHA_256, SaslMechanism.SCRAM_SHA_512)
    asked = str(given.get("sasl.mechanism", given.get("sasl.mechanisms", "")))
    for mechanism in known:
        if asked == mechanism.value:
            return mechanism
    names = ", ".join(mechanism.value for mechanism in known)
    raise ConfigError("client.sasl-mechanism-unknown", cluster=name, mechanism=asked or "(none)", known=names)


THREAD_NAME_PREFIX = "twinshore"


def thread_name(does: str, whose: str = "") -> str:
    return f"{THREAD_NAME_PREFIX}-{does} {whose}".rstrip()


def client_thread(does: str, whose: str, run: Callable[[], object]) -> threading.Thread:
    """Returns a daemon thread, not started: an unreachable cluster may block the thread for long, and no process must
    wait for that.
    """
    return threading.Thread(target=run, name=thread_name(does, whose), daemon=True)


WARN_AGAIN_AFTER_S = 60.0
WARNINGS_KEPT_MAX = 100


class WarningQueue:
    """Queues warnings for `tell`, which a thread without locks calls: a logging handler may call the client. Any thread
    may add one.

    A repeated sentence is logged once, and again after a minute without a repeat. Code that knows when a problem is
    over uses `config.repeat_filter`.
    """

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = steady_s) -> None:
        self._log, self._clock = log, clock
        self._waiting: deque[tuple[str, Mapping[str, object]]] = deque()
        self._heard_s: dict[str, float] = {}

    def __call__(self, sentence: str, **fields: object) -> None:
        now_s = self._clock()
        before_s = self._heard_s.pop(sentence, None)
        self._heard_s[sentence] = now_s
        with suppress(KeyError, RuntimeError, StopIteration):  # another thread may evict too
            while len(self._heard_s) > WARNINGS_KEPT_MAX:
                del self._heard_s[next(iter(self._heard_s))]
        if before_s is None or now_s >= before_s + WARN_AGAIN_AFTER_S:
            self._waiting.append((sentence, fields))

    def tell(self) -> None:
        """Log queued warnings. Exceptions of a logging handler are suppressed: no thread ends."""
        while True:
            try:
                sentence, fields = self._waiting.popleft()
            except IndexError:
                return
            with suppress(Exception):
                self._log.warning(sentence, extra=fields)

    def now(self, sentence: str, **fields: object) -> None:
        """Queue and log. The caller holds no lock."""
        self(sentence, **fields)
        self.tell()
