"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs: settings of topics, brokers and groups. Pure.

A broker is named by the number that clients know, and asked under its own. Where it listens, and whom it knows by
which number, is not told: clients are to know the proxy's addresses alone.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import Any, Final

from twinshore.kafka.errors import Code
from twinshore.proxy.core.admin.shares import CHANGE_S, NO_SUCH_TOPIC, Shares, Words, first_of, located, moves, place_of
from twinshore.proxy.core.layout import ANY, Layout, Place
from twinshore.proxy.core.messages import read_asked
from twinshore.proxy.core.moves import ERRAND_S, Errand, Move, Run
from twinshore.proxy.core.seen import Seen
from twinshore.wire.apis import DESCRIBE_CONFIGS
from twinshore.wire.serving.requests import Request

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
GROUP: Final = 32
# Addresses, and numbers of brokers and controllers within them.
HIDDEN: Final = frozenset(
    {
        "advertised.listeners",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "listeners",
        "zookeeper.connect",
    }
)
OWN_NUMBERS: Final = frozenset({"broker.id", "node.id"})
# Partitions and brokers, as `0:1,1:2`.
THROTTLED: Final = frozenset({"follower.replication.throttled.replicas", "leader.replication.throttled.replicas"})


def _names(one: Any) -> dict[str, Any]:
    return {"resource_type": one.resource_type, "resource_name": one.resource_name}


CONFIGS_CHANGED: Final = Words("resources", "responses", _names)


def configs(request: Request, layout: Layout, seen: Seen) -> Move:
    """Of topics at their home, of brokers at themselves, of groups at the groups' home."""
    wait_s = ERRAND_S if request.key == DESCRIBE_CONFIGS else CHANGE_S
    return Run(_configs(request, read_asked(request), layout, seen), wait_s)


def _configs(request: Request, asked: Any, layout: Layout, seen: Seen) -> Errand:
    describes = request.key == DESCRIBE_CONFIGS
    words = Words("resources", "results", _names) if describes else CONFIGS_CHANGED
    shares = Shares(request, asked, words, seen, partial(_renamed, layout=layout))
    homes = yield from located([one.resource_name for one in asked.resources if one.resource_type == TOPIC], seen)
    for one in asked.resources:
        name = one.resource_name
        if one.resource_type == TOPIC:
            if not describes and (fixed := sorted(THROTTLED & {config.name for config in one.configs})):
                says = f"{fixed[0]} names brokers by their own numbers: set it at the cluster's own address"
                shares.refuse(one, Code.POLICY_VIOLATION, says)
            elif not describes and seen.must_wait(name):
                shares.refuse(one, Code.REQUEST_TIMED_OUT, moves(name))
            elif name in homes:
                shares.give(one, Place(homes[name], ANY))
            else:
                shares.refuse(one, Code.UNKNOWN_TOPIC_OR_PARTITION, NO_SUCH_TOPIC)
        elif one.resource_type == GROUP:
            shares.give(one, Place(seen.group_home(), ANY))
        elif one.resource_type in (BROKER, BROKER_LOGGER):
            _of_broker(shares, one, describes, layout, seen)
        else:
            says = f"settings of the type {one.resource_type} are not served by this proxy"
            shares.refuse(one, Code.POLICY_VIOLATION, says)
    return (yield from shares.errand())


def _of_broker(shares: Shares, one: Any, describes: bool, layout: Layout, seen: Seen) -> None:
    name = one.resource_name
    if not name:
        # What holds for all brokers of a cluster has no place where there are several.
        if describes:
            shares.give(one, Place(first_of(seen), ANY))
        else:
            says = "what holds for all brokers is each cluster's own: name a broker, or ask the cluster itself"
            shares.refuse(one, Code.POLICY_VIOLATION, says)
        return
    place = place_of(int(name), layout, seen) if name.isascii() and name.isdecimal() and len(name) < 10 else None
    if place is None:
        shares.refuse(one, Code.INVALID_REQUEST, f"there is no broker {name} behind this proxy")
    elif not describes and (fixed := sorted(HIDDEN & {config.name for config in one.configs})):
        shares.refuse(one, Code.POLICY_VIOLATION, f"{fixed[0]} is changed at the broker's own address only")
    else:
        shares.give(replace(one, resource_name=str(place.node)), place)


def _renamed(cluster: str, one: Any, layout: Layout) -> Any:
    if one.resource_type in (BROKER, BROKER_LOGGER) and one.resource_name.isdecimal():
        one = replace(one, resource_name=str(layout.number(cluster, int(one.resource_name))))
    if not hasattr(one, "configs"):
        return one
    return replace(one, configs=tuple(_shown(cluster, config, layout) for config in one.configs))


def _shown(cluster: str, one: Any, layout: Layout) -> Any:
    if one.name in HIDDEN:
        return replace(one, value=None, is_sensitive=True, synonyms=())
    if one.name in OWN_NUMBERS | THROTTLED:
        synonyms = tuple(replace(two, value=_numbers(cluster, two.value, layout)) for two in one.synonyms)
        return replace(one, value=_numbers(cluster, one.value, layout), synonyms=synonyms)
    return one


def _numbers(cluster: str, value: str | None, layout: Layout) -> str | None:
    """A number, or that behind the colon of each pair in `0:1,1:2`; a star stays."""

    def number(found: re.Match[str]) -> str:
        return str(layout.number(cluster, int(found[0])))

    return None if value is None else re.sub(r"(?<![^:])\b\d{1,9}\b(?!:)", number, value)
