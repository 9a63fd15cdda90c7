"""Which groups a forced switch may tear, by where they stand on the new home. Only asks."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import closing

from twinshore.fleet import KafkaError, Link, NamedPartition
from twinshore.kafka.cluster import KafkaCluster, OffsetKind
from twinshore.kafka.groups import Groups
from twinshore.switch.torn import Writing, writing


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
    read = {where for some in places.values() for where in some if where[0] in topics}
    ends = new.list_offsets([NamedPartition(*where) for where in read], OffsetKind.LOG_END)
    by_where = {(named.topic, named.partition): end for named, end in ends.items()}
    known = (writing(name, link.groups.outputs, topics, places[name], by_where) for name in sorted(places))
    return [one for one in known if one is not None]
