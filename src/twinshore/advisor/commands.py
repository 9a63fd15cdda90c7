"""Lines that mend a finding, as they are typed. Pure.

They are for Kafka's own tools, which every operator has. Where the cluster asks clients for more than an address, the
line names a file of client settings.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from twinshore.advisor.profiles import MIN_ISR
from twinshore.advisor.seen import Partition, Seen, Topic
from twinshore.fleet.sentences import counted
from twinshore.kafka.rights import Acl, Operation, Pattern, Permission, Resource

# New replicas of a topic's partitions, by the partition's number.
Replicas = Mapping[int, Sequence[int]]


def placed(seen: Seen, copies: int) -> Mapping[str, Replicas]:
    """Of each topic what its partitions get that have fewer than `copies`, or all of them in one rack although there
    are others. What holds records already stays first. Each topic is placed behind those before it, and always the
    same way: two rules that speak of one topic give it the same. A cluster with fewer brokers can place nothing."""
    if copies not in seen.placed:
        seen.placed[copies] = _placed(seen, copies)
    return seen.placed[copies]


def _placed(seen: Seen, copies: int) -> dict[str, Replicas]:
    load = Counter(node for one in seen.topics for part in one.partitions for node in (*part.replicas, *part.adding))
    found: dict[str, Replicas] = {}
    for topic in seen.topics:
        moved: dict[int, list[int]] = {}
        for part in topic.partitions if not topic.moves else ():
            nodes = _nodes(seen.racks, part, copies, load)
            if nodes != list(part.replicas):
                moved[part.number] = nodes
                load.update(node for node in nodes if node not in part.replicas)
        found[topic.name] = moved
    return found


def _nodes(racks: Mapping[int, str], part: Partition, copies: int, load: Counter[int]) -> list[int]:
    alone = in_one_rack(racks, part) and len(set(racks.values())) > 1
    # Kafka's tool takes no broker that is away; where all are, there is nothing to copy from.
    there = [node for node in part.replicas if node in racks]
    if not there or (len(part.replicas) >= copies and not alone):
        return list(part.replicas)
    wanted = max(copies, len(there), 2 if alone else 1)
    nodes = there[: wanted - 1] if alone else there
    while len(nodes) < wanted:
        used = Counter(racks[node] for node in nodes)
        free = (node for node in racks if node not in nodes)
        nodes.append(min(free, key=lambda node: (used[racks[node]], load[node], node)))
    return nodes


def in_one_rack(racks: Mapping[int, str], part: Partition) -> bool:
    """All of its replicas, where it has several."""
    return len(part.replicas) > 1 and len({racks.get(node, "") for node in part.replicas}) == 1


CLIENT_FILE = "client.properties"
MOVES = (
    "its partitions are given other replicas right now: look again once `kafka-reassign-partitions.sh --list` is empty"
)
ONCE_SETTLED = "once each of its partitions has a leader and all replicas in sync"


class Reached(Protocol):
    """How a tool comes to a cluster."""

    @property
    def bootstrap(self) -> tuple[str, ...]: ...

    @property
    def secured(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Place:
    """A cluster of which nothing else is known."""

    bootstrap: tuple[str, ...]
    secured: bool


def to_cluster(seen: Reached) -> str:
    """The options that lead a tool to the cluster."""
    where = f"--bootstrap-server {shlex.quote(','.join(seen.bootstrap))}"
    return f"{where} --command-config {CLIENT_FILE}" if seen.secured else where


def set_on_topic(seen: Reached, topic: str, settings: Mapping[str, str]) -> str:
    return _configs(seen, f"--topic {shlex.quote(topic)}", f"--add-config {_pairs(settings)}")


def min_isr_on_topic(seen: Reached, topic: Topic, minimum: int) -> tuple[tuple[str, ...], str]:
    """The line that sets its min.insync.replicas. While a replica is away, it is told as what comes after that."""
    line = set_on_topic(seen, topic.name, {MIN_ISR: str(minimum)})
    return ((line,), "") if topic.settled else ((), f"{ONCE_SETTLED}: {line}")


def unset_on_topic(seen: Reached, topic: str, settings: Iterable[str]) -> str:
    return _configs(seen, f"--topic {shlex.quote(topic)}", f"--delete-config {','.join(settings)}")


def set_on_brokers(seen: Reached, settings: Mapping[str, str]) -> str:
    """On all brokers at once; only for settings that brokers take while they run."""
    return _configs(seen, "--entity-type brokers --entity-default", f"--add-config {_pairs(settings)}")


def rule(seen: Reached, acl: Acl, *, gives: bool) -> str:
    """Gives an ACL, or takes it back."""
    allows = "allow" if acl.permission == Permission.ALLOW else "deny"
    kind = Resource(acl.resource).name.lower().replace("_", "-")
    pattern = Pattern(acl.pattern).name.lower()
    return (
        f"kafka-acls.sh {to_cluster(seen)} {'--add' if gives else '--remove --force'} --{kind} {shlex.quote(acl.name)}"
        f" --resource-pattern-type {pattern} --{allows}-principal {shlex.quote(acl.principal)}"
        f" --{allows}-host {shlex.quote(acl.host)} --operation {_pascal(Operation(acl.operation).name)}"
    )


def _pascal(word: str) -> str:
    return "".join(part.capitalize() for part in word.split("_"))


def in_properties(settings: Mapping[str, str]) -> str:
    """For settings that a broker reads when it starts."""
    lines = ", ".join(f"`{name}={value}`" for name, value in settings.items())
    return f"put {lines} into server.properties of every broker, and restart one after the other"


def elect_preferred(seen: Reached, topic: str, partitions: Sequence[int]) -> str:
    named = [{"topic": topic, "partition": number} for number in partitions]
    return (
        f"kafka-leader-election.sh {_admin(seen)} --election-type preferred"
        f" --path-to-json-file <(echo {_json({'partitions': named})})"
    )


def reassign(seen: Reached, topic: str, replicas: Mapping[int, Sequence[int]]) -> str:
    """Gives partitions these replicas, beside what is copied already. It copies their records to the new ones, so it is
    never done by itself."""
    named = [{"topic": topic, "partition": number, "replicas": list(nodes)} for number, nodes in replicas.items()]
    text = _json({"version": 1, "partitions": named})
    how = "--execute --additional"
    return f"kafka-reassign-partitions.sh {to_cluster(seen)} --reassignment-json-file <(echo {text}) {how}"


def describe_group(seen: Reached, group: str) -> str:
    return f"kafka-consumer-groups.sh {to_cluster(seen)} --describe --group {shlex.quote(group)}"


def more_copies(seen: Seen, topic: Topic, copies: int) -> tuple[tuple[str, ...], str]:
    """The line that gives it so many, or what must be done before."""
    if topic.moves:
        return (), MOVES
    if len(seen.brokers) < copies:
        return (), f"start {counted(copies - len(seen.brokers), 'more broker')}, then reassign the topic's partitions"
    moved = placed(seen, copies)[topic.name]
    if not moved:
        return (), "bring the brokers of its partitions back first: there is nothing to copy from"
    return (reassign(seen, topic.name, moved),), ""


def _configs(seen: Reached, entity: str, change: str) -> str:
    return f"kafka-configs.sh {to_cluster(seen)} --alter {entity} {change}"


def _admin(seen: Reached) -> str:
    # This one tool has another name for the same option.
    return to_cluster(seen).replace("--command-config", "--admin.config")


def _pairs(settings: Mapping[str, str]) -> str:
    """As kafka-configs.sh takes them: it parts them at commas, but for those in brackets."""
    told = {name: f"[{value}]" if "," in value else value for name, value in settings.items()}
    return shlex.quote(",".join(f"{name}={value}" for name, value in told.items()))


def _json(value: object) -> str:
    return shlex.quote(json.dumps(value, separators=(",", ":")))
