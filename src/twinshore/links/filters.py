"""Which topics a link lets through. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import lru_cache

from twinshore.fleet import HEARTBEATS, NOTES_TOPICS, Link, is_heartbeats

OWN_PREFIX = "twinshore."
KAFKAS = frozenset(
    ("__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata", "__remote_log_metadata")
)
# Nothing an application wrote.
INTERNAL = KAFKAS.union(NOTES_TOPICS)


def is_of_no_application(topic: str) -> bool:
    """Kafka's own topics and Twinshore's."""
    return topic in INTERNAL or is_heartbeats(topic)


@lru_cache(maxsize=1024)
def is_guarded(topic: str) -> bool:
    """Whether no client may change the topic: Kafka's own topics, and all that begin with `twinshore.`."""
    return topic.startswith(OWN_PREFIX) or is_of_no_application(topic)


def admits(link: Link, topic: str) -> bool:
    """Whether the link may carry the topic. Kafka's own topics never pass; the source's own heartbeats always do, and
    those of others where twins go on, as far as they are twins, which their descent says."""
    if topic == HEARTBEATS or (link.chain and is_heartbeats(topic)):
        return True
    return topic not in INTERNAL and passes_filters(link, topic)


def passes_filters(link: Link, topic: str) -> bool:
    """Whether the link's filters let the topic through. Exclusions win."""
    if any(re.fullmatch(pattern, topic) for pattern in link.exclude):
        return False
    return any(re.fullmatch(pattern, topic) for pattern in link.topics)


def filters_json(link: Link) -> str:
    """The link's filters, for the store."""
    return json.dumps([link.topics, link.exclude])


def with_filters(link: Link, text: str) -> Link:
    """The link with these filters out of the store; ValueError or TypeError where they are none."""
    topics, exclude = json.loads(text)
    return replace(link, topics=tuple(topics), exclude=tuple(exclude))
