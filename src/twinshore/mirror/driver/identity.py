"""A link's identity from its first start on, told to the target."""

from __future__ import annotations

from twinshore.fleet import Link
from twinshore.kafka.cluster import KafkaCluster
from twinshore.mirror.driver.link_notes import LinkNotes
from twinshore.service.identity import recognise
from twinshore.store import LinkIdentity, Store


def establish(link: Link, store: Store, source: KafkaCluster, target: KafkaCluster, notes: LinkNotes) -> LinkIdentity:
    """The link's identity from now on, told to the target: at its first start that gives it a producer id."""
    known = recognise(link, store, source, target)
    notes.hold(source.cluster_id())
    if known is None:
        producer_id, epoch = target.init_producer_id()
        made = LinkIdentity(link.name, producer_id, epoch, source.cluster_id(), target.cluster_id())
        known = store.links.save_identity(made)
    notes.introduce(known)
    return known
