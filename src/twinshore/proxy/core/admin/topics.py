"""CreateTopics, DeleteTopics and CreatePartitions: where a topic is made, and who may end it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from twinshore.homes.leader_cluster import Lacks, in_words
from twinshore.kafka.errors import Code
from twinshore.proxy.core.admin.shares import (
    CHANGE_S,
    Shares,
    Words,
    controller,
    first_of,
    holders,
    located,
    moves,
    place_of,
    unseen,
)
from twinshore.proxy.core.layout import Layout
from twinshore.proxy.core.messages import read_asked
from twinshore.proxy.core.moves import Errand, Move, Run
from twinshore.proxy.core.seen import Seen
from twinshore.wire.serving.requests import Request

_NO_SUCH: Final = Code.UNKNOWN_TOPIC_OR_PARTITION
CREATED: Final = Words("topics", "topics", lambda one: {"name": one.name})
DELETED: Final = Words("topic_names", "responses", lambda one: {"name": one})
GROWN: Final = Words("topics", "results", lambda one: {"name": one.name})


def create_topics(request: Request, layout: Layout, seen: Seen, news: Callable[[], None]) -> Move:
    """Each on its home where it had one, else on the cluster that rules of names say. One that any cluster has exists
    already: clients would be led to that one."""
    return Run(_create(request, read_asked(request), layout, seen, news), CHANGE_S)


def _create(request: Request, asked: Any, layout: Layout, seen: Seen, news: Callable[[], None]) -> Errand:
    shares = Shares(request, asked, CREATED, seen)
    held = yield from holders([str(one.name) for one in asked.topics], seen)
    for one in asked.topics:
        name = str(one.name)
        home = _due(name, layout, seen)
        # Whether it is there already its controller knows better: brokers remember a deleted one for a moment.
        elsewhere = [cluster for cluster in held.get(name, ()) if cluster != home]
        if elsewhere:
            says = f"Topic '{name}' already exists, on cluster {elsewhere[0]}"
            shares.refuse(one, Code.TOPIC_ALREADY_EXISTS, says)
        elif name in seen.leaderless:
            shares.refuse(one, Code.TOPIC_ALREADY_EXISTS, in_words(name, seen.leaderless[name]))
        elif seen.unseen:
            shares.refuse(one, Code.REQUEST_TIMED_OUT, unseen(name, seen))
        else:
            _give(shares, one, home, layout, seen)
    body = yield from shares.errand()
    news()
    return body


def _due(topic: str, layout: Layout, seen: Seen) -> str:
    """Where it is made: where it had a home, by the clusters' own words or the store's, else by rules of names."""
    lead = seen.leads.get(topic)
    home = lead.cluster if lead else seen.homes.get(topic)
    if home in seen.clusters:
        return str(home)
    return layout.new_topics.cluster_of(topic) or first_of(seen)


def _give(shares: Shares, one: Any, cluster: str, layout: Layout, seen: Seen) -> None:
    """With the cluster's own numbers of brokers, where the client names some."""
    try:
        real = _assigned(one, cluster, layout, seen)
    except LookupError as error:
        shares.refuse(one, Code.INVALID_REPLICA_ASSIGNMENT, str(error.args[0]))
    else:
        shares.give(real, controller(cluster, seen))


def _assigned(topic: Any, cluster: str, layout: Layout, seen: Seen) -> Any:
    if not topic.assignments:
        return topic
    assignments = []
    for one in topic.assignments:
        nodes = []
        for number in one.broker_ids:
            place = place_of(number, layout, seen)
            if place is None or place.cluster != cluster:
                raise LookupError(f"broker {number} is none of cluster {cluster}, where topic {topic.name} belongs")
            nodes.append(place.node)
        assignments.append(replace(one, broker_ids=tuple(nodes)))
    return replace(topic, assignments=tuple(assignments))


def delete_topics(request: Request, layout: Layout, seen: Seen, news: Callable[[], None]) -> Move:
    """At the only cluster that has it. One that is mirrored is refused: what deletes its twin, or keeps it, is the
    mirror's to decide, and clients would be led to the twin meanwhile."""
    return Run(_delete(request, read_asked(request), layout, seen, news), CHANGE_S)


def _delete(request: Request, asked: Any, layout: Layout, seen: Seen, news: Callable[[], None]) -> Errand:
    shares = Shares(request, asked, DELETED, seen)
    held = yield from holders(map(str, asked.topic_names), seen)
    for topic in asked.topic_names:
        clusters = held.get(str(topic), [])
        if seen.unseen:
            shares.refuse(topic, Code.REQUEST_TIMED_OUT, unseen(str(topic), seen))
        elif len(clusters) > 1 or topic in seen.leaderless or seen.has_home(str(topic)):
            why = f"it is on {' and '.join(clusters)}" if len(clusters) > 1 else "it has a home"
            says = f"topic {topic} counts as mirrored, as {why}: it is deleted at its cluster's own address only"
            shares.refuse(topic, Code.POLICY_VIOLATION, says)
        else:
            # A topic that no broker knows may have been made a moment ago: its controller says whether it was.
            shares.give(topic, controller(clusters[0] if clusters else _due(str(topic), layout, seen), seen))
    body = yield from shares.errand()
    news()
    return body


def create_partitions(request: Request, layout: Layout, seen: Seen) -> Move:
    """At the topic's home. A mirror makes the same partitions of a twin."""
    return Run(_create_partitions(request, read_asked(request), layout, seen), CHANGE_S)


def _create_partitions(request: Request, asked: Any, layout: Layout, seen: Seen) -> Errand:
    shares = Shares(request, asked, GROWN, seen)
    homes = yield from located([str(one.name) for one in asked.topics], seen)
    for one in asked.topics:
        if one.name in seen.leaderless:
            lacking = seen.leaderless[str(one.name)]
            code = _NO_SUCH if lacking.lacks is Lacks.ELSEWHERE else Code.REQUEST_TIMED_OUT
            shares.refuse(one, code, in_words(str(one.name), lacking))
        elif seen.must_wait(str(one.name)):
            shares.refuse(one, Code.REQUEST_TIMED_OUT, moves(str(one.name)))
        else:
            _give(shares, one, homes.get(str(one.name)) or _due(str(one.name), layout, seen), layout, seen)
    return (yield from shares.errand())
