"""What clients would see of the clusters of the settings, before a proxy serves them. Asks, and changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace

from twinshore.fleet import Cluster, KafkaError
from twinshore.fleet.settings import Settings
from twinshore.fleet.settings.sections import near
from twinshore.fleet.settings.sections.proxy import SECTION
from twinshore.homes.home_lines import HomeLine
from twinshore.homes.home_notes import HomeNotes
from twinshore.kafka.cluster import KafkaCluster
from twinshore.proxy.core.near import Rules
from twinshore.proxy.core.prospect import Prospect
from twinshore.proxy.gate import Gate
from twinshore.proxy.late_store import LateStore
from twinshore.proxy.lookout import Lookout
from twinshore.proxy.serving import chosen, layout_of
from twinshore.proxy.whereabouts import leads_by

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
