"""Which groups a forced switch may tear, by where they stand on the new home. Only asks."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import closing

from twinshore.fleet import KafkaError, Link, NamedPartition
from twinshore.kafka.cluster import KafkaCluster, OffsetKind
from twinshore.kafka.groups import Groups
from twinshore.switch.torn import Writing, reads_of, writing


def may_be_torn(new: KafkaCluster, link: Link, topics: Collection[str]) -> Iterator[str]:
    """A sentence for each; or why nobody knows, which keeps no switch from being made."""
    try:
        for one in _writing(new, link, topics):
            yield one.sentence()
    except KafkaError as error:
        yield f"which groups may be torn is not known: {error.message}"


def _writing(new: KafkaCluster, link: Link, topics: Collection[str]) -> list[Writing]:
    with closing(Groups(new)) as groups:
        wanted: dict[int, dict[str, None]] = {}
        for one in groups.listed().groups.values():
            if one.reads_by_offsets:
                wanted.setdefault(one.coordinator, {})[one.group] = None
        found, _ = groups.places(wanted, {})
    places = {name: {where: place.offset for where, place in one.places.items()} for name, one in found.items()}
    rules = link.groups.outputs
    read = frozenset[str]().union(*(reads_of(name, rules, topics, some) for name, some in places.items()))
    shown = new.metadata(sorted(read)).topics if read else {}
    every = [NamedPartition(topic, one.partition) for topic in read & shown.keys() for one in shown[topic].partitions]
    begins, ends = (new.list_offsets(every, kind) for kind in (OffsetKind.EARLIEST, OffsetKind.LOG_END))
    spans = {(named.topic, named.partition): (begins[named], ends[named]) for named in every}
    known = (writing(name, rules, topics, places[name], spans) for name in sorted(places))
    return [one for one in known if one is not None]
