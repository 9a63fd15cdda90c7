"""Explains why one producer cannot move alone, or what to do if both sides are written. Changes nothing."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from twinshore.config.errors import ConfigError, KafkaError, RefusedError
from twinshore.config.model import Link, TwinNaming
from twinshore.config.sentences import join_names
from twinshore.config.settings import Settings
from twinshore.kafka.admin import read_acls
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.access_control import Acl, AclOperation, AclPermission
from twinshore.routing.core.subscribers import SubscriberLog
from twinshore.routing.homes_topic import SubscribersTopic
from twinshore.state.store import Store
from twinshore.switch.operations.plan import SwitchPlan, SwitchPlanRequest, carrier_of, open_link

NAMED_MAX = 8
WRITE_OPERATIONS = frozenset({AclOperation.WRITE, AclOperation.ALL})


def plan(request: SwitchPlanRequest, settings: Settings, store: Store) -> SwitchPlan:
    """Always refuses, with the obstacle or with instructions. Raises ConfigError if no topic matches."""
    settings.cluster(request.to)
    if not request.topics or request.group or request.wave:
        raise ConfigError("switch.producer-needs-topics")
    link, topics = carrier_of(replace(request, group=""), settings, store)
    if link.naming is not TwinNaming.SAME:
        return SwitchPlan(refusal=_both_sides(request, link, topics))
    with open_link(link, settings) as clients:
        others = _others(clients.source, request.producer, topics)
    names = join_names(topics, NAMED_MAX)
    also = f"; there also write, or may write: {join_names(others, NAMED_MAX)}" if others else ""
    ends = {"producer": request.producer, "source": link.source, "target": link.target}
    refusal = RefusedError("switch.producer-not-alone", topics=names, others=also, topic=topics[0], **ends)
    return SwitchPlan(refusal=refusal)


def _both_sides(request: SwitchPlanRequest, link: Link, topics: Sequence[str]) -> RefusedError:
    names, twins = (join_names(each, NAMED_MAX) for each in (topics, [link.twin_of(topic) for topic in topics]))
    ends = {"producer": request.producer, "source": link.source, "target": link.target}
    return RefusedError("switch.producer-moves-alone", link=link.name, topics=names, twins=twins, **ends)


def _others(home: KafkaCluster, producer: str, topics: Sequence[str]) -> list[str]:
    log = SubscriberLog()
    notes = SubscribersTopic(home, log)
    try:
        if notes.exists():
            notes.read()
        acls = read_acls(home) or frozenset()
    except KafkaError as error:
        return [f"which clients is not known: {error.message}"]
    living = log.living(time.monotonic())
    clients = {one.name or one.id for one in living if any(one.writes(topic) for topic in topics)}
    return sorted((clients | writers_by_rule(acls, topics)) - {producer, f"User:{producer}"})


def writers_by_rule(acls: Iterable[Acl], topics: Sequence[str]) -> set[str]:
    return {
        acl.principal
        for acl in acls
        if acl.permission is AclPermission.ALLOW
        and acl.operation in WRITE_OPERATIONS
        and any(acl.covers(topic) for topic in topics)
    }
