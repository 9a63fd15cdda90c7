"""Two clusters with the coordinators of one group, on which a reset is played: no broker, no proxy that serves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from twinshore.config.settings import Settings, parse_settings
from twinshore.kafka.groups import GroupMembers
from twinshore.kafka.protocol.offsets import Place, Where
from twinshore.proxy import offset_reset
from twinshore.proxy.core.offset_reset import Spot
from twinshore.proxy.offset_reset import Standing
from twinshore.proxy.operations import offsets
from twinshore.proxy.operations.offsets import Asked, act, plan
from twinshore.state.core.proxy_values import ResetRow
from twinshore.state.store import Store, open_store

UNKNOWN_MEMBER = 25
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

    def standing(self, _: str, topics: Any, *_more: object) -> Standing:
        self.looked()
        spots = []
        for topic, keeper in sorted(self.keeps.items()):
            was = self.places.get((keeper, topic, 0))
            if topic in topics or (not topics and was is not None):
                spots.append(Spot(keeper, topic, 0, was, self.begins.get(topic, 0), 1000))
        there = self.members[self.home]
        return Standing(
            self.home, GroupMembers("Stable" if there else "Empty", dict(there)), tuple(spots), {}, self.term
        )

    def row(self) -> ResetRow:
        (found,) = self.store.proxy_resets.all()[1]
        return found

    def does(self, asked: Asked) -> list[str]:
        meant = plan(asked, SETTINGS, self.store)
        if meant.refused:
            raise meant.refused
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
                self, places: dict[int, dict[str, dict[Where, Place]]], still: Callable[[], bool]
            ) -> dict[str, dict[Where, int]]:
                assert still()
                found: dict[str, dict[Where, int]] = {}
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

        monkeypatch.setattr(offset_reset, "Groups", Groups)
        monkeypatch.setattr(offset_reset, "node_of", lambda *_: 1)
        monkeypatch.setattr(offset_reset, "members_of", members_of)
        monkeypatch.setattr(offset_reset, "send_away", lambda cluster, *_: made.members[cluster.name].clear())
        monkeypatch.setattr(offset_reset, "LATE_S", 0.0)
        monkeypatch.setattr(offset_reset, "FIRST_S", 0.0)
        monkeypatch.setattr(offsets, "standing", made.standing)
        monkeypatch.setattr(offsets, "serving", lambda _: [None])
        monkeypatch.setattr(offsets, "_clusters", lambda *_: {name: Cluster(name) for name in ("east", "west")})
        yield made
