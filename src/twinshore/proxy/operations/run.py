"""A proxy on this machine: preview, serve, and its users."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from logging.handlers import BufferingHandler

from twinshore.config.errors import ConfigError, KafkaError, StoreError
from twinshore.config.live import USERS, format_key
from twinshore.config.model import Cluster, Plan, SaslMechanism, Secret
from twinshore.config.sections import near
from twinshore.config.sections.proxy import SECTION
from twinshore.config.settings import Settings
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.sasl import derive_scram_keys
from twinshore.proxy.auth import SALT_BYTES, SCRAM_ITERATIONS, Authenticator
from twinshore.proxy.cluster_view import ClusterWatcher, merge_home_records
from twinshore.proxy.core.follower_fetch import FollowerFetchRules
from twinshore.proxy.core.proxy_preview import ProxyPreview
from twinshore.proxy.lazy_store import LazyStore
from twinshore.proxy.server import Worker, build_addressing, select_clusters, supervise_workers
from twinshore.proxy.server import serve as until_ended
from twinshore.routing.core.home_records import HomeRecord
from twinshore.routing.homes_topic import HomesTopic
from twinshore.runtime.live_settings import SettingStep, plan_rows, plan_unset, settings_in_force
from twinshore.runtime.process import raise_open_files_limit
from twinshore.state.store import Store

PREVIEW_TIMEOUT_S = 4.0


def preview_proxy(settings: Settings, topics: Sequence[str] = ()) -> ProxyPreview:
    """Preview what a proxy would serve now. ConfigError if it could not start."""
    clusters = select_clusters(settings)
    with ExitStack() as stack:
        logged = stack.enter_context(_logged())
        store = stack.enter_context(closing(LazyStore(settings)))
        with suppress(StoreError):  # which is said below
            there = store.get()
            settings = settings_in_force(settings, there) if there is not None else settings
        proxy_settings = settings.of(SECTION)
        addressing = build_addressing(proxy_settings, clusters)
        stack.enter_context(closing(Authenticator(proxy_settings, clusters)))
        lookout = stack.enter_context(closing(ClusterWatcher(clusters, addressing, store)))
        asyncio.run(lookout.first())
        table = lookout.table
        lines = [_lines(cluster) for cluster in clusters if table.clusters[cluster.name].answers]
    table = replace(table, leads=merge_home_records(lines, table.clusters, settings))
    is_own = FollowerFetchRules(own_topics=settings.of(near.SECTION).own_topics).is_own
    tls = bool(proxy_settings.certificate_file)
    remarks = tuple(dict.fromkeys(record.getMessage() for record in logged))
    return ProxyPreview(table, addressing, tuple(topics), is_own, tls, tuple(proxy_settings.sasl), remarks)


def _lines(cluster: Cluster) -> Mapping[str, HomeRecord]:
    """Returns the home records; none if the cluster is silent by now."""
    with (
        closing(KafkaCluster(cluster, patience_s=PREVIEW_TIMEOUT_S, call_s=PREVIEW_TIMEOUT_S)) as kafka,
        suppress(KafkaError),
    ):
        return HomesTopic(kafka).read()
    return {}


@contextmanager
def _logged() -> Iterator[list[logging.LogRecord]]:
    """Keeps what the proxy logs within the block; no other handler gets it."""
    log, keeper = logging.getLogger("twinshore.proxy"), BufferingHandler(sys.maxsize)
    log.addHandler(keeper)
    log.propagate = False
    try:
        yield keeper.buffer
    finally:
        log.propagate = True
        log.removeHandler(keeper)


def serve_proxy(settings: Settings, processes: int = 0) -> None:
    """Serve until Ctrl-C, SIGTERM or SIGHUP. A store may be created later. `processes`: 0 for the settings' number."""
    select_clusters(settings)
    count = processes or settings.of(SECTION).processes
    if count > 1:
        supervise_workers(settings, count)
    else:
        serve(settings)


def serve(settings: Settings, part: Worker | None = None) -> None:
    """Serve by this process. `part`: as one of several."""
    raise_open_files_limit()  # two for each client
    store = LazyStore(settings)
    try:
        until_ended(settings, store, part)
    finally:
        store.close()


def format_user_table(name: str, password: Secret) -> str:
    """Returns a user's table for the users file. ConfigError without a password."""
    keys = _salted(password.read(), password.file or password.env)
    return f'[{json.dumps(name, ensure_ascii=False)}]\nscram_sha_512 = "{keys}"'


def plan_user(name: str, password: str, settings: Settings, store: Store, *, by: str) -> Plan[SettingStep]:
    """Plans a user in the store, which keeps no password. ConfigError if this proxy knows no users of its own."""
    if not settings.of(SECTION).users_file:
        raise ConfigError("proxy.no-users-file")
    return plan_rows((*USERS, name), _salted(password, f"user {name}"), settings, store, by=by)


def plan_no_user(name: str, settings: Settings, store: Store) -> Plan[SettingStep]:
    """Plans to remove a user from the store. One of the users file stays."""
    return plan_unset(format_key((*USERS, name)), settings, store)


def _salted(password: str, place: str) -> str:
    """Returns what is kept of the password."""
    if not password:
        raise ConfigError("proxy.password-empty", place=place)
    salt = secrets.token_bytes(SALT_BYTES)
    return derive_scram_keys(password, SaslMechanism.SCRAM_SHA_512, salt, SCRAM_ITERATIONS).text
