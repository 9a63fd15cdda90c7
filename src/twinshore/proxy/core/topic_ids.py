"""Topic ids as clients see them: those of the groups' home. Pure.

Each cluster gives a topic an id of its own. Groups of the newer protocol are dealt out partitions by ids, and their
coordinator knows those of its own cluster. So clients are told that cluster's id of each topic, whichever cluster the
topic is at home on: it stays as it is while the topic moves, and is another one only once groups have moved. Of a topic
that the groups' home does not have no id is told. Records are written and read by names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from twinshore.fleet.errors import WireError
from twinshore.proxy.core.seen import Seen


def id_of(topic: str, seen: Seen) -> UUID | None:
    """What is known of it; None where it has none that clients could use."""
    if not seen.stays(topic):
        return None
    found = seen.clusters[seen.group_home()].ids.get(topic)
    return UUID(bytes=found) if found else None


def with_id(topic: Any, cluster: str, seen: Seen) -> Any:
    """A topic of an answer about topics, as this cluster told of it, in versions that have ids."""
    if not hasattr(topic, "topic_id"):
        return topic
    fresh = cluster == seen.group_home() and topic.topic_id is not None and seen.stays(str(topic.name))
    found = topic.topic_id if fresh else id_of(str(topic.name), seen)
    return replace(topic, topic_id=found)


def names_in(asked: Sequence[Any], seen: Seen) -> tuple[list[str], list[UUID]]:
    """The topics that a question for metadata names, some of them by their ids perhaps; and ids that nobody knows."""
    names: list[str] = []
    unknown: list[UUID] = []
    for one in asked:
        topic_id = getattr(one, "topic_id", None)
        if one.name is not None:
            names.append(str(one.name))
        elif topic_id is None:
            raise WireError("Metadata: a topic without a name and an id")
        elif (name := seen.names_of_ids.get(topic_id.bytes)) is not None:
            names.append(name)
        else:
            unknown.append(topic_id)
    return names, unknown
