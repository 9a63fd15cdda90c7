"""The section `near`: networks, sites that have clusters, and bounds."""

from __future__ import annotations

import pytest

from twinshore.config.errors import ConfigError
from twinshore.config.sections.near import SECTION, NearSettings
from twinshore.config.sections.proxy import SECTION as PROXY
from twinshore.config.settings import parse_settings

CLUSTERS = """
[clusters.east]
bootstrap = ["e:1"]
site = "frankfurt"
[clusters.west]
bootstrap = ["w:1"]
site = "paris"
"""


def read(text: str) -> NearSettings:
    return parse_settings(CLUSTERS + text, name="test", env={}).of(SECTION)


def test_without_the_section_nobody_is_near_anything() -> None:
    assert read("") == NearSettings(behind_s_max=5.0, own_topics=(), networks=(), next_sites={})


def test_networks_stand_for_sites_and_sites_have_next_ones() -> None:
    text = """
    [near]
    behind_s_max = 8.0
    own_topics = ["logs.*"]
    [near.networks]
    "10.1.0.0/16" = "frankfurt"
    "2001:db8::/32" = "lyon"
    "10.2.0.7" = "paris"
    [near.next]
    lyon = ["paris", "frankfurt"]
    """
    found = read(text)
    assert (found.behind_s_max, found.own_topics) == (8.0, ("logs.*",))
    assert found.networks == (("10.1.0.0/16", "frankfurt"), ("2001:db8::/32", "lyon"), ("10.2.0.7", "paris"))
    assert found.next_sites == {"lyon": ("paris", "frankfurt")}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("behind_s_max = 0.5", r"\[near\] behind_s_max: is 0.5, the least is 1"),
        ('networks = { "10.1.0.0/33" = "paris" }', r"\[near\] networks: '10.1.0.0/33' is no network like 10.1.0.0/16"),
        ('networks = { "10.1.2.3/16" = "paris" }', r"networks: '10.1.2.3/16' is no network .*has host bits set"),
        (
            'networks = { "10.1.0.0/16" = "pariss" }',
            r"10.1.0.0/16: no cluster is at site 'pariss', and next has none for it; did you mean paris\?",
        ),
        ('own_topics = ["(a|b)"]', r"own_topics: '\(a\|b\)' is no name of topics with `\*` in it"),
        ('networks = ["paris"]', r"\[near\] networks: must be a table"),
        ('next = "paris"', r"\[near\] next: must be a table"),
        ('next = { lyon = "paris" }', r"next: lyon: must be a list of sites"),
        ('next = { lyon = ["lyon"] }', r"next: lyon: no cluster is at site 'lyon'"),
        ("network = {}", r"network: unknown; did you mean networks\?"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read(f"[near]\n{text}\n")


def test_balancers_are_networks_or_addresses() -> None:
    text = '[proxy]\nbalancers = ["10.0.0.0/24", "::1"]\n'
    assert parse_settings(CLUSTERS + text, name="test", env={}).of(PROXY).balancers == ("10.0.0.0/24", "::1")
    with pytest.raises(ConfigError, match=r"\[proxy\] balancers: 'lb' is no network"):
        read('[proxy]\nbalancers = ["lb"]\n')
