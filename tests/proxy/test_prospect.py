"""What is told of clients' sight before a proxy serves: on values, and of two real clusters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from testkit.cluster import RigCluster
from testkit.errors import mentions
from tests.proxy.served import ProxyProcess
from tests.proxy.talks import LAYOUT, seen
from twinshore.config.frozen import FOLLOWERS_TOPIC, HEARTBEATS, HOMES_TOPIC, TWINS_TOPIC
from twinshore.config.model import Cluster
from twinshore.config.settings import load_settings
from twinshore.lab.ports import free_port
from twinshore.proxy.core.api_versions import HANDLED_API_VERSIONS, without_consumer_protocol
from twinshore.proxy.core.model import HomeRoute, RoutingTable
from twinshore.proxy.core.proxy_preview import ProxyPreview
from twinshore.proxy.operations.run import preview_proxy


def prospect(now: RoutingTable, *asked: str, own: tuple[str, ...] = (), **more: object) -> ProxyPreview:
    return replace(ProxyPreview(now, LAYOUT, asked, lambda topic: topic in own), **more)  # type: ignore[arg-type]


def test_a_topic_of_two_clusters_that_nobody_knows_the_home_of_clashes() -> None:
    clash = prospect(seen(homes={}))
    assert clash.clashes == {"shared": ["east", "west"]}
    (told,) = [one for one in clash.sentences() if one.startswith("CLASH")]
    assert mentions(told, "shared", "east", "west")
    assert (clash.exit_code, clash.values()["exit_code"]) == (1, 1)
    for quiet in (
        prospect(seen(homes={"shared": "west"})),
        prospect(replace(seen(homes={}), leads={"shared": HomeRoute("west", 3)})),
        prospect(seen(homes={}), own=("shared",)),
    ):
        assert (quiet.clashes, quiet.exit_code) == ({}, 0)


def test_twinshores_own_notes_are_on_each_cluster_and_clash_with_nothing() -> None:
    notes = frozenset({HOMES_TOPIC, FOLLOWERS_TOPIC, TWINS_TOPIC, HEARTBEATS, f"east.{HEARTBEATS}"})
    now = seen(homes={"shared": "west"})
    both = {name: replace(one, topics=one.topics | notes) for name, one in now.clusters.items()}
    quiet = prospect(RoutingTable(both, now.homes, now.offers))
    assert (quiet.clashes, quiet.exit_code) == ({}, 0)
    assert [one for one in quiet.sentences() if one.startswith("topics routed")] == [
        one for one in prospect(now).sentences() if one.startswith("topics routed")
    ]


def test_of_many_clashes_those_that_were_asked_for_come_first() -> None:
    many = frozenset(f"t{number:02}" for number in range(30))
    now = seen()
    both = {name: replace(one, topics=one.topics | many) for name, one in now.clusters.items()}
    told = [one for one in prospect(RoutingTable(both, {}, now.offers), "t29").sentences() if "CLASH" in one]
    assert len(told) == 10 and told[0].startswith("CLASH: t29 is on")


def test_where_topics_are_led_and_why() -> None:
    now = replace(seen(homes={"shared": "west"}), leads={"bills": HomeRoute("west", 2)})
    asked = prospect(now, "orders", "bills", "shared", "none")
    assert asked.values()["routes"] == {"orders": "east", "bills": "west", "shared": "west", "none": None}
    told = [one for one in asked.sentences() if one.startswith("topic ")]
    assert [mentions(one, topic) for one, topic in zip(told, asked.asked, strict=True)] == [True] * 4
    assert prospect(now, "none").exit_code == 1
    assert prospect(now, "orders").values()["routes"] == {"orders": "east"}


def test_clusters_ports_and_how_clients_come_in() -> None:
    told = list(prospect(seen(away=("west",)), tls=True, logins=("PLAIN",)).sentences())
    assert mentions(told[0], "proxy.example:19092", "TLS", "PLAIN") and mentions(told[1], 19092, 19292)
    assert mentions(told[2], "east", "2 topics", "1 at proxy.example:19094", "3 at proxy.example:19096")
    assert mentions(told[3], "west") and any("Produce" in one for one in told)
    assert prospect(seen(away=("west",), homes={"shared": "west"})).exit_code == 1


def test_what_two_real_clusters_look_like(
    east: RigCluster, west: RigCluster, unique_topic: str, tmp_path: Path
) -> None:
    only, both = f"{unique_topic}-only", f"{unique_topic}-both"
    for lab, topics in ((east, (only, both)), (west, (both,))):
        for topic in topics:
            lab.create_topic(topic)
    served = ProxyProcess(tmp_path, [east.cluster, west.cluster])
    found = preview_proxy(load_settings(served.settings, {}), (only, both))
    text = "\n".join(found.sentences())
    assert found.values()["routes"] == {only: "east", both: None}
    assert f"1 at 127.0.0.1:{served.port_of('east', 1)}" in text
    values = found.values()
    assert values["exit_code"] == 1 and both in values["clashes"] and values["versions"]["Produce"][1] >= 9
    assert not (tmp_path / "store.db").exists(), "it makes no store"

    silent = Cluster("silent", (f"127.0.0.1:{free_port()}",))
    (tmp_path / "other").mkdir()
    served = ProxyProcess(tmp_path / "other", [east.cluster, silent])
    found = preview_proxy(load_settings(served.settings, {}), (only,))
    assert (found.table.route(only), found.unknown, found.exit_code) == ("east", [], 1)
    assert any(mentions(one, "silent") for one in found.sentences())


def test_it_says_whether_groups_of_the_new_protocol_are_served() -> None:
    assert not [one for one in prospect(seen()).sentences() if mentions(one, "groups", "refused")]
    old = without_consumer_protocol(HANDLED_API_VERSIONS)
    clusters = {**seen().clusters, "west": replace(seen().clusters["west"], offers=old)}
    told = prospect(RoutingTable(clusters, {}, old)).sentences()
    assert [mentions(one, "east", "west") for one in told if mentions(one, "groups", "refused")] == [True]
