"""What is known of a home, so that a twin can be compared with it before it is deleted."""

from __future__ import annotations

from twinshore.fleet import NamedPartition
from twinshore.kafka.cluster import KafkaCluster, OffsetKind
from twinshore.mirror.follow.cleaned import cleaned_of
from twinshore.store import Store
from twinshore.switch.hands.rescue import Home
from twinshore.switch.hands.returned_logs import producers
from twinshore.switch.lacking import Beside
from twinshore.switch.returned import Tail


def home_of(link: str, tail: Tail, home: KafkaCluster, store: Store, known_to: int) -> Home:
    """The home beside which the tail is read. `link` writes the twin."""
    named = NamedPartition(tail.topic, tail.partition)
    start = home.list_offsets([named], OffsetKind.EARLIEST)[named]
    compacted = tail.topic in cleaned_of(store.memories.of(link))
    return Home(home, Beside(start, producers(store, link), known_to, compacted))
