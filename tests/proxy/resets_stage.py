"""Two clusters with the coordinators of one group, on which a reset is played: no broker, no proxy that serves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from twinshore.config.settings import Settings, parse_settings
from twinshore.kafka.consumer_groups import GroupMembers
from twinshore.kafka.protocol.offsets import CommittedOffset, TopicPartitionTuple
from twinshore.proxy.core.offset_reset import ResetPartition
from twinshore.proxy.operations import reset_offsets
from twinshore.proxy.operations.reset_offsets import GroupPositions, ResetOffsets, act, plan
from twinshore.state.core.proxy_values import ProxyInstanceRow, ResetRow, ResetStatusRow
from twinshore.state.store import Store, open_store

UNKNOWN_MEMBER = 25
PROXY = ProxyInstanceRow("p", "proxy", "host", 9092, 0, 0, 0)
Stood = tuple[str, str, int]


@dataclass
class World:
    """`keeps`: the cluster that keeps a topic's places. `begins`: of each log; all end at 1000. `wrote` is called
    once places are written on a cluster, `looked` before it is looked where the group stands."""

    store: Store
    home: str = "east"
    term: int = 1
    keeps: dict[str, str] = field(default_factory=lambda: {"orders": "east", "bills": "west"})
    begins: dict[str, int] = field(default_factory=dict)
    members: dict[str, dict[str, str | None]] = field(default_factory=lambda: {"east": {"m1": None}, "west": {}})
    places: dict[Stood, int] = field(default_factory=dict)
    wrote: Callable[[str], None] = lambda _: None
    looked: Callable[[], None] = lambda: None

    def standing(self, _: str, topics: Any, *_more: object) -> GroupPositions:
        self.looked()
        spots = []
        for topic, keeper in sorted(self.keeps.items()):
            was = self.places.get((keeper, topic, 0))
            if topic in topics or (not topics and was is not None):
                spots.append(ResetPartition(keeper, topic, 0, was, self.begins.get(topic, 0), 1000))
        there = self.members[self.home]
        return GroupPositions(
            self.home, GroupMembers("Stable" if there else "Empty", dict(there)), tuple(spots), {}, self.term
        )

    def row(self) -> ResetRow:
        (found,) = self.store.proxy_resets.all()[1]
        return found

    def does(self, asked: ResetOffsets) -> list[str]:
        meant = plan(asked, SETTINGS, self.store)
        if meant.refusal:
            raise meant.refusal
        return [step.sentence(done=True) for step in act(asked, meant, SETTINGS, self.store, "anna")]


@dataclass
class Cluster:
    name: str


SETTINGS: Settings = parse_settings("", name="test", env={})


@contextmanager
def world(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with open_store(f"sqlite:///{folder}/store.db") as store:
        made = World(store)

        class Groups:
            def __init__(self, cluster: Cluster) -> None:
                self.cluster, self.name = cluster, cluster.name

            def close(self) -> None:
                pass

            def commit(
                self,
                places: dict[int, dict[str, dict[TopicPartitionTuple, CommittedOffset]]],
                still: Callable[[], bool],
            ) -> dict[str, dict[TopicPartitionTuple, int]]:
                assert still()
                found: dict[str, dict[TopicPartitionTuple, int]] = {}
                for group, some in (entry for one in places.values() for entry in one.items()):
                    for where, place in some.items():
                        taken = not made.members[self.name]
                        found.setdefault(group, {})[where] = 0 if taken else UNKNOWN_MEMBER
                        if taken:
                            made.places[self.name, *where] = place.offset
                if places:
                    made.wrote(self.name)
                return found

        def members_of(cluster: Cluster, *_: object) -> GroupMembers:
            there = made.members[cluster.name]
            return GroupMembers("Stable" if there else "Empty", dict(there))

        monkeypatch.setattr(reset_offsets, "ConsumerGroups", Groups)
        monkeypatch.setattr(reset_offsets, "find_coordinator_node", lambda *_: 1)
        monkeypatch.setattr(reset_offsets, "read_group_members", members_of)
        monkeypatch.setattr(reset_offsets, "remove_members", lambda cluster, *_: made.members[cluster.name].clear())
        monkeypatch.setattr(reset_offsets, "LATE_MEMBER_GRACE_S", 0.0)
        monkeypatch.setattr(reset_offsets, "FIRST_MEMBER_TIMEOUT_S", 0.0)
        monkeypatch.setattr(reset_offsets, "read_group_positions", made.standing)
        monkeypatch.setattr(reset_offsets, "list_serving_proxies", lambda _: [PROXY])
        monkeypatch.setattr(made.store.proxy_resets, "statuses", lambda run: [ResetStatusRow(PROXY.id, run, 0, 0)])
        monkeypatch.setattr(reset_offsets, "_clusters", lambda *_: {name: Cluster(name) for name in ("east", "west")})
        yield made
