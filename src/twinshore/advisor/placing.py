"""Where partitions get the replicas that they lack, so that all that is advised together spreads them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from twinshore.advisor.seen import Partition, Seen

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
