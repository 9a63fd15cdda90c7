"""What must hold before links may run, and what can be said of one while Spark still starts: whether both clusters
answer, how much there is, what rests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from twinshore.fleet import ConfigError, KafkaError, Link, RefusedError, TwinshoreError
from twinshore.fleet.sentences import counted
from twinshore.fleet.settings import Settings
from twinshore.kafka.cluster import KafkaCluster
from twinshore.links.filters import is_of_no_application
from twinshore.links.rules import check_links
from twinshore.mirror.driver.preview import holding
from twinshore.mirror.driver.survey import Surveyor
from twinshore.mirror.incidents.standing import stopping
from twinshore.service.ends import Ends
from twinshore.service.identity import recognise
from twinshore.service.scheduler import tasks
from twinshore.store import Store, open_store

# Not long: the link's driver asks again, and says it, as soon as it runs.
PATIENCE_S = 4.0


def check_chosen(settings: Settings, links: Sequence[Link]) -> None:
    """ConfigError where there is nothing to run, or where links taken together could loop or collide."""
    if not links:
        raise ConfigError("no link to run", hint='name one in the settings: [links."east->west"]')
    # All links of the settings, though only some run here: another process may run the others.
    check_links(settings.links)


def open_writable(settings: Settings) -> Store:
    """The store; StoreError where it cannot be had, or only be read."""
    store = open_store(settings.store.url, settings.store.password)
    try:
        store.leases.check_writable()
    except BaseException:
        store.close()
        raise
    return store


def refusals(links: Sequence[Link], settings: Settings, store: Store) -> dict[str, RefusedError]:
    """Why which of these links must not run: their addresses lead to other clusters than they began with. Clusters that
    do not answer within some seconds are their drivers' affair."""
    found: dict[str, RefusedError] = {}

    def look(link: Link) -> None:
        with Ends(link, settings, client_id="twinshore-first", patience_s=PATIENCE_S, call_s=PATIENCE_S) as ends:
            try:
                recognise(link, store, ends.source, ends.target)
            except RefusedError as error:
                found[link.name] = error
            except TwinshoreError:
                return

    until_s = time.monotonic() + 2 * PATIENCE_S
    asked = [tasks.once(f"address {link.name}", partial(look, link), asks=(link.source, link.target)) for link in links]
    for task in asked:
        task.ended(max(0.0, until_s - time.monotonic()))
        task.close(0.0)
    return dict(found)


def first_words(link: Link, settings: Settings, store: Store) -> Callable[[], str]:
    """The store is read at once; what comes back asks both clusters and makes the sentence."""
    now = holding(link, settings, store, lambda _: None)
    rests = len(stopping(store, link.name))
    paused = "; it is paused" if now.control.paused else ""
    resting = f"; open incidents stop {rests} partitions, see `twinshore status`" if rests else ""

    def ask() -> str:
        with Ends(now, settings, client_id="twinshore-first", patience_s=PATIENCE_S, call_s=PATIENCE_S) as ends:
            surveyor = Surveyor(now, ends.source, ends.target)
            topics = _answer(ends.source, lambda: of_topics(surveyor.names(), _shown(ends.source)))
            there = _answer(ends.target, lambda: f"brokers: {len(ends.target.metadata([]).brokers):,}")
        return f"{now.name}: {topics}; {there}{paused}{resting}"

    return ask


def of_topics(admitted: Iterable[str], shown: Iterable[str]) -> str:
    """How many topics of the source the link would carry; where there is none, why, and what to do. `shown`: all topics
    that the source shows to the mirror's user."""
    there = [name for name in shown if not is_of_no_application(name)]
    count = sum(name in there for name in admitted)
    if count:
        return f"the link's filters admit {count:,} of its {counted(len(there), 'topic')}"
    if there:
        return (
            f"the link's filters admit none of its {counted(len(there), 'topic')}: `twinshore link list` shows the"
            " filters, `twinshore link filter` changes them"
        )
    return (
        "it shows no topic to the mirror's user: a topic that is made now is carried within seconds; if it has topics,"
        " grant that user the right Describe"
    )


def _shown(source: KafkaCluster) -> list[str]:
    return [name for name, topic in source.metadata(None).topics.items() if not topic.error and not topic.internal]


def _answer(cluster: KafkaCluster, ask: Callable[[], str]) -> str:
    try:
        return f"{cluster.name} answers, {ask()}"
    except KafkaError as error:
        return f"{cluster.name} does not answer yet: {error.message}"
