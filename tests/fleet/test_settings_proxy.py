"""The section `proxy`: clusters by name, and ports that are there."""

from __future__ import annotations

import pytest

from twinshore.fleet import ConfigError
from twinshore.fleet.settings import parse_settings
from twinshore.fleet.settings.sections.proxy import SECTION, ProxySettings

CLUSTERS = '[clusters.east]\nbootstrap = ["e:1"]\n[clusters.west]\nbootstrap = ["w:1"]\n'


def read(text: str) -> ProxySettings:
    return parse_settings(CLUSTERS + text, name="test", env={}).of(SECTION)


def test_by_default_all_clusters_are_behind_it_in_the_order_of_the_settings() -> None:
    found = read("")
    assert (found.clusters, found.port, found.advertised_host) == (("east", "west"), 19092, "127.0.0.1")
    assert read('[proxy]\nclusters = ["west"]\n').clusters == ("west",)
    assert read('[proxy]\naddress = "0.0.0.0"\nadvertised_host = "kafka"\n').advertised_host == "kafka"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('clusters = ["wst"]', r"\[proxy\] clusters: no cluster 'wst'; did you mean west\?"),
        ('clusters = ["west", "west"]', r"\[proxy\] clusters: each once"),
        ('address = "0.0.0.0"', r"advertised_host: is required where address is 0.0.0.0"),
        ("port = 65000\nnodes_per_cluster = 400", r"the last port would be 65800, they end at 65535"),
        ("prot = 1", r"prot: unknown; did you mean port\?"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read(f"[proxy]\n{text}\n")
