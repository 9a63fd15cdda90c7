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

from twinshore.advisor.seen import Partition, Seen, Topic

CLIENT_FILE = "client.properties"


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


def unset_on_topic(seen: Reached, topic: str, settings: Iterable[str]) -> str:
    return _configs(seen, f"--topic {shlex.quote(topic)}", f"--delete-config {','.join(settings)}")


def set_on_brokers(seen: Reached, settings: Mapping[str, str]) -> str:
    """On all brokers at once; only for settings that brokers take while they run."""
    return _configs(seen, "--entity-type brokers --entity-default", f"--add-config {_pairs(settings)}")


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
    """Gives partitions these replicas. It copies their records to the new ones, so it is never done by itself."""
    named = [{"topic": topic, "partition": number, "replicas": list(nodes)} for number, nodes in replicas.items()]
    text = _json({"version": 1, "partitions": named})
    return f"kafka-reassign-partitions.sh {to_cluster(seen)} --reassignment-json-file <(echo {text}) --execute"


def describe_group(seen: Reached, group: str) -> str:
    return f"kafka-consumer-groups.sh {to_cluster(seen)} --describe --group {shlex.quote(group)}"


def placed(seen: Seen, topic: Topic, copies: int) -> dict[int, list[int]] | None:
    """Replicas for each partition that has fewer than `copies`, or all of them in one rack although there are others.
    What holds records already stays first; None where brokers are too few."""
    if len(seen.brokers) < copies:
        return None
    load = Counter(node for one in seen.topics for part in one.partitions for node in part.replicas)
    moved: dict[int, list[int]] = {}
    for part in topic.partitions:
        nodes = _nodes(seen, part, copies, load)
        if nodes != list(part.replicas):
            moved[part.number] = nodes
            load.update(node for node in nodes if node not in part.replicas)
    return moved


def _nodes(seen: Seen, part: Partition, copies: int, load: Counter[int]) -> list[int]:
    wanted = max(copies, len(part.replicas))
    known = [node for node in part.replicas if node in seen.racks]
    alone = len(set(seen.racks.values())) > 1 and len({seen.racks[node] for node in known}) == 1
    nodes = known[: wanted - 1] if alone and len(known) >= wanted else known
    while len(nodes) < wanted:
        used = Counter(seen.racks[node] for node in nodes)
        free = [node for node in seen.racks if node not in nodes]
        nodes.append(min(free, key=lambda node: (used[seen.racks[node]], load[node], node)))
    return nodes


def _configs(seen: Reached, entity: str, change: str) -> str:
    return f"kafka-configs.sh {to_cluster(seen)} --alter {entity} {change}"


def _admin(seen: Reached) -> str:
    # This one tool has another name for the same option.
    return to_cluster(seen).replace("--command-config", "--admin.config")


def _pairs(settings: Mapping[str, str]) -> str:
    return shlex.quote(",".join(f"{name}={value}" for name, value in settings.items()))


def _json(value: object) -> str:
    return shlex.quote(json.dumps(value, separators=(",", ":")))
