"""What became of a topic that should be seen and is not: over for good, or out of sight. Pure.

A broker's list of all topics leaves out those that are gone and those that its asker may not describe, without a word.
Asked for a topic by name it tells the two apart, so that only what it says by name counts.
"""

from __future__ import annotations

from typing import NamedTuple

from twinshore.fleet import Link, is_heartbeats
from twinshore.kafka.errors import Code, describe
from twinshore.links.filters import admits


class Sought(NamedTuple):
    """`over`: nobody expects it to be carried any more, so that nothing is late. `why` is a sentence's end. `deleted`:
    the source has it no more."""

    over: bool
    why: str
    deleted: bool = False


def sought(link: Link, name: str, source: int | None, target: int | None) -> Sought:
    """What is so of a topic of the source, by the error codes with which both clusters answer to its name; None where
    one said nothing."""
    if is_heartbeats(name):
        return Sought(True, "heartbeats are watched by themselves")
    if not admits(link, name):
        return Sought(True, f"the link does not carry {name} any more")
    if source == Code.UNKNOWN_TOPIC_OR_PARTITION:
        return Sought(True, f"{name} was deleted on {link.source}", deleted=True)
    twin = link.twin_of(name)
    for cluster, topic, code in ((link.source, name, source), (link.target, twin, target)):
        if code is None:
            return Sought(False, f"{cluster} says nothing of {topic}")
        if code == Code.TOPIC_AUTHORIZATION_FAILED:
            return Sought(False, f"{cluster} refuses to describe {topic}: the monitor's user needs Describe on it")
        if code == Code.UNKNOWN_TOPIC_OR_PARTITION:
            return Sought(
                False,
                f"{topic} is not on {cluster} any more, and {name} still is on {link.source}; leave it out with"
                " `twinshore link filter` if that is on purpose",
            )
        if code:
            return Sought(False, f"{cluster} says of {topic}: {describe(code).name}")
    return Sought(False, f"{link.target} has fewer partitions of {twin} than {link.source} has of {name}")
