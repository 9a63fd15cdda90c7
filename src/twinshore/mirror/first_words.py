"""What can be said of a link while Spark still starts: whether both clusters answer, how much there is, what rests."""

from __future__ import annotations

from collections.abc import Callable

from twinshore.fleet import KafkaError, Link
from twinshore.fleet.settings import Settings
from twinshore.kafka.cluster import KafkaCluster
from twinshore.mirror.incidents.standing import stopping
from twinshore.mirror.preview import holding
from twinshore.mirror.survey import Surveyor
from twinshore.store import Store

# Not long: the link's driver asks again, and says it, as soon as it runs.
PATIENCE_S = 4.0


def first_words(link: Link, settings: Settings, store: Store) -> Callable[[], str]:
    """The store is read at once; what comes back asks both clusters and makes the sentence."""
    now = holding(link, settings, store, lambda _: None)
    rests = len(stopping(store, link.name))
    paused = "; it is paused" if now.control.paused else ""
    resting = f"; open incidents stop {rests} partitions, see `twinshore status`" if rests else ""

    def ask() -> str:
        source, target = (
            KafkaCluster(settings.cluster(name), client_id="twinshore-first", patience_s=PATIENCE_S, call_s=PATIENCE_S)
            for name in (now.source, now.target)
        )
        try:
            surveyor = Surveyor(now, source, target)
            topics = _answer(source, lambda: f"{len(surveyor.names()):,} of its topics are admitted")
            there = _answer(target, lambda: f"brokers: {len(target.metadata([]).brokers):,}")
        finally:
            source.close()
            target.close()
        return f"{now.name}: {topics}; {there}{paused}{resting}"

    return ask


def _answer(cluster: KafkaCluster, ask: Callable[[], str]) -> str:
    try:
        return f"{cluster.name} answers, {ask()}"
    except KafkaError as error:
        return f"{cluster.name} does not answer yet: {error.message}"
