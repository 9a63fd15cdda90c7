"""Sites, twins and looks at them, as values: east is in Frankfurt and home of orders, west in Paris has its twin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tests.proxy.talks import LAYOUT, seen
from twinshore.proxy.core.follower_fetch import (
    FollowerFetch,
    FollowerFetchRules,
    NetworkTable,
    TopicCheck,
    TwinLogBounds,
)
from twinshore.proxy.core.model import BrokerId, HomeRoute, RoutingTable
from twinshore.proxy.core.session import ClientSession

PARIS, ELSEWHERE = "10.2.0.7", "192.168.0.1"
NETWORKS = NetworkTable([("10.1.0.0/16", "frankfurt"), ("10.2.0.0/16", "paris")])

LEVEL = TwinLogBounds(2, 0, 100)


def known(**leads: HomeRoute) -> RoutingTable:
    """Both clusters have orders, which is at home on east."""
    plain = seen(homes={"orders": "east", "shared": "east"})
    west = replace(plain.clusters["west"], topics=plain.clusters["west"].topics | {"orders"})
    return replace(plain, clusters={**plain.clusters, "west": west}, leads=leads)


def near(**more: object) -> FollowerFetch:
    return FollowerFetch(replace(FollowerFetchRules({"east": "frankfurt", "west": "paris"}), **more), NETWORKS)  # type: ignore[arg-type]


def look(
    at_s: float, home: int = 100, twin: TwinLogBounds | None = LEVEL, *, term: int = 0, topic: str = "orders"
) -> TopicCheck:
    """One partition, that ends there at home."""
    twins: Mapping[str, Mapping[int, TwinLogBounds | None]] = {"west": {0: twin}}
    return TopicCheck(topic, "east", term, at_s, {0: home}, twins)


def level_at(made: FollowerFetch, at_s: float, now: RoutingTable, term: int = 0) -> None:
    """Somebody has wanted orders, and its twin is level."""
    made.tick(at_s, now)
    made.wants("orders")
    made.take([look(at_s, term=term)])
    made.tick(at_s, now)


def client(made: FollowerFetch, place: BrokerId, address: str = PARIS) -> ClientSession:
    talk = ClientSession(place, LAYOUT, lambda: None, follower_fetch=made)
    talk.comes_from(address)
    return talk
