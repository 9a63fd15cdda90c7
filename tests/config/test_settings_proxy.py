"""The section `proxy`: clusters by name, and ports that are there."""

from __future__ import annotations

import pytest

from twinshore.config.errors import ConfigError
from twinshore.config.sections.proxy import SECTION, ProxySettings
from twinshore.config.settings import parse_settings

CLUSTERS = '[clusters.east]\nbootstrap = ["e:1"]\n[clusters.west]\nbootstrap = ["w:1"]\n'


def read(text: str) -> ProxySettings:
    return parse_settings(CLUSTERS + text, name="test", env={}).of(SECTION)


def test_by_default_all_clusters_are_behind_it_in_the_order_of_the_settings() -> None:
    found = read("")
    assert (found.clusters, found.port, found.advertised_host) == (("east", "west"), 19092, "127.0.0.1")
    assert read('[proxy]\nclusters = ["west"]\n').clusters == ("west",)
    assert read('[proxy]\naddress = "0.0.0.0"\nadvertised_host = "kafka"\n').advertised_host == "kafka"


def test_where_names_tell_brokers_apart_one_port_is_enough() -> None:
    files = 'certificate_file = "c"\nkey_file = "k"\nnodes_per_cluster = 400\n'
    found = read(f'[proxy]\nport = 65535\nnode_hosts = "node-*.kafka.example"\n{files}')
    assert (found.node_hosts, found.port) == ("node-*.kafka.example", 65535)


def test_new_topics_are_made_on_one_cluster_or_on_others_by_their_names() -> None:
    assert (read("").new_topics, read("").new_topics_by_name) == ("", ())
    found = read('[proxy]\nnew_topics = "west"\n[proxy.new_topics_by_name]\n"app-*" = "east"\n"*-eu" = "west"\n')
    assert (found.new_topics, found.new_topics_by_name) == ("west", (("app-*", "east"), ("*-eu", "west")))


def test_alarms_are_tables_with_bounds() -> None:
    found = read('[proxy.alarms.busy]\ntopic = "orders*"\nabove_bytes_s = 1000\n').alarms
    assert [(name, one.topic, one.above_bytes_s, one.for_s) for name, one in found] == [("busy", "orders*", 1000, 30)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('clusters = ["wst"]', r"\[proxy\] clusters: no cluster 'wst'; did you mean west\?"),
        ('clusters = ["west", "west"]', r"\[proxy\] clusters: each once"),
        ('address = "0.0.0.0"', r"advertised_host: is required where address is 0.0.0.0"),
        ("port = 65000\nnodes_per_cluster = 400", r"the last port would be 65800, they end at 65535"),
        ('node_hosts = "node.example"', r"node_hosts: must have one `\*`, before the first dot"),
        ('node_hosts = "node-*"', r"node_hosts: must have one `\*`, before the first dot"),
        ('node_hosts = "a.*.example"', r"node_hosts: must have one `\*`, before the first dot"),
        ('node_hosts = "node_*.example"', r"node_hosts: 'node_\*.example' is no name of hosts"),
        ('node_hosts = "node-*.example"', r"node_hosts: needs certificate_file"),
        ('new_topics = "wset"', r"\[proxy\] new_topics: no cluster 'wset'; did you mean west\?"),
        ('new_topics_by_name = { "a-*" = "wset" }', r"'a-\*': no cluster 'wset'; did you mean west\?"),
        ('new_topics_by_name = { "(a|b)" = "west" }', r"'\(a\|b\)' is no name of topics with `\*` in it"),
        ("new_topics_by_name = 5", r"new_topics_by_name: must be a table"),
        ("prot = 1", r"prot: unknown; did you mean port\?"),
        ('traffic_cluster = "wset"', r"traffic_cluster: no cluster 'wset'; did you mean west\?"),
        ("alarms = 5", r"alarms: must be tables \[proxy.alarms.NAME\]"),
        ("[proxy.alarms.a]\nfor_s = 5", r"\[proxy.alarms.a\] needs a bound"),
        ('[proxy.alarms.a]\nabove_bytes_s = 1\nkind = "fetched"', r"no such value 'fetched'; did you mean fetch\?"),
        ('[proxy.alarms.a]\nlatency_ms = 1\nkind = "fetch"', r"measured in bytes alone"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read(f"[proxy]\n{text}\n")
