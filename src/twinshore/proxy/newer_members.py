"""Groups that do not move while they have members: those of the newer protocol (KIP-848)."""

from __future__ import annotations

from contextlib import closing

from twinshore.fleet import RefusedError
from twinshore.fleet.sentences import listed
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.groups import CONSUMER, Groups

NAMED_MAX = 5


def none_of_newer_protocol(home: KafkaCluster) -> None:
    """RefusedError where such a group has members there: nothing has them commit what they have read, and wait."""
    with closing(Groups(home)) as groups:
        found = groups.listed()
    if found.away:
        why = next(iter(found.away.values())).message
        raise RefusedError(f"which groups {home.name} has is not known: {why}")
    if live := sorted(one.group for one in found.groups.values() if one.kind == CONSUMER and one.live):
        raise RefusedError(
            f"groups of the new protocol move only while they have no members: {listed(live, NAMED_MAX)}",
            hint="stop their members, which have group.protocol=consumer, until groups have moved",
        )
