"""A proxy on this machine: what clients would see, serving them, and a table of its users file."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from functools import partial

from twinshore.config.errors import ConfigError, KafkaError
from twinshore.config.model import Cluster, SaslMechanism, Secret
from twinshore.config.sections import near
from twinshore.config.sections.proxy import SECTION
from twinshore.config.settings import Settings
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.sasl import keys_of
from twinshore.proxy.auth import ITERATIONS, SALT_BYTES, Gate
from twinshore.proxy.cluster_view import Lookout
from twinshore.proxy.core.follower_fetch import Rules
from twinshore.proxy.core.preview import Prospect
from twinshore.proxy.late_store import LateStore
from twinshore.proxy.offset_reset import leads_by
from twinshore.proxy.server import Part, Word, chosen, keep, layout_of
from twinshore.proxy.server import serve as until_ended
from twinshore.routing.core.records import HomeLine
from twinshore.routing.topic import HomeNotes
from twinshore.runtime.process import allow_most

WITHIN_S = 4.0


def look(settings: Settings, topics: Sequence[str] = ()) -> Prospect:
    """As a proxy takes them up that begins now. ConfigError where it could not begin."""
    asked, clusters = settings.of(SECTION), chosen(settings)
    layout, said = layout_of(asked, clusters), list[str]()
    with ExitStack() as stack:
        stack.enter_context(closing(Gate(asked, clusters, said.append)))
        store = stack.enter_context(closing(LateStore(settings, said.append)))
        lookout = stack.enter_context(closing(Lookout(clusters, layout, store, said.append)))
        asyncio.run(lookout.first())
        seen = lookout.seen
        lines = [_lines(one) for one in clusters if seen.clusters[one.name].answers]
    seen = replace(seen, leads=leads_by(lines, seen.clusters, settings))
    is_own = Rules(own_topics=settings.of(near.SECTION).own_topics).is_own
    tls = bool(asked.certificate_file)
    return Prospect(seen, layout, tuple(topics), is_own, tls, tuple(asked.sasl), tuple(dict.fromkeys(said)))


def _lines(cluster: Cluster) -> Mapping[str, HomeLine]:
    """None of a cluster that has fallen silent since it was looked at."""
    with closing(KafkaCluster(cluster, patience_s=WITHIN_S, call_s=WITHIN_S)) as kafka, suppress(KafkaError):
        return HomeNotes(kafka).read()
    return {}


def serve(settings: Settings, log: Callable[[str], None], processes: int = 0) -> None:
    """Until Ctrl-C, SIGTERM or SIGHUP. It begins without a store as well, and takes up one that is made later.
    `processes`: so many, in place of what the settings say, where it is not 0."""
    chosen(settings)
    count = processes or settings.of(SECTION).processes
    if count > 1:
        keep(settings, count, log)
    else:
        _serve(settings, log, None)


def serve_part(settings: Settings, part: Part) -> None:
    """The same, as one of several processes."""
    _serve(settings, partial(part.tell, Word.SAID), part)


def _serve(settings: Settings, log: Callable[[str], None], part: Part | None) -> None:
    allow_most()  # two for each client
    store = LateStore(settings, log)
    try:
        until_ended(settings, store, log, part)
    finally:
        store.close()


def user_table(name: str, password: Secret) -> str:
    """What is to stand in the users file; ConfigError where there is no password."""
    plain = password.read()
    if not plain:
        raise ConfigError(f"{password.file or password.env} holds no password")
    keys = keys_of(plain, SaslMechanism.SCRAM_SHA_512, secrets.token_bytes(SALT_BYTES), ITERATIONS)
    return f'[{json.dumps(name, ensure_ascii=False)}]\nscram_sha_512 = "{keys.text}"'
