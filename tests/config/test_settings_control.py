"""Naming, chains and what a link begins with until the store says otherwise."""

from __future__ import annotations

import pytest

from twinshore.config.errors import ConfigError
from twinshore.config.model import Link, LinkControl, TwinNaming
from twinshore.config.settings import parse_settings

CLUSTERS = '[clusters.east]\nbootstrap = ["a:1"]\n[clusters.west]\nbootstrap = ["b:1"]\n'


def read(link: str) -> Link:
    return parse_settings(CLUSTERS + '[links."east->west"]\n' + link, name="here.toml", env={}).links[0]


def test_a_link_names_its_twins_as_their_sources_unless_told_otherwise() -> None:
    link = read("")
    assert (link.naming, link.chain, link.twin_of("orders")) == (TwinNaming.SAME, False, "orders")
    assert link.twin_of("twinshore.heartbeats") == "east.twinshore.heartbeats", "they would meet the target's own"
    link = read('naming = "prefix"\nchain = true')
    assert (link.naming, link.chain, link.twin_of("orders")) == (TwinNaming.PREFIX, True, "east.orders")


def test_control_in_the_settings_is_what_a_link_begins_with() -> None:
    link = read(
        '[links."east->west".control]\nthrottle_bytes_s = 5000\npaused_topics = ["old.*"]\n'
        'topic_throttles = { "orders.*" = 1000, "orders" = 7 }\npriorities = { "orders" = 100 }\n'
    )
    control = link.control
    assert (control.throttle_bytes_s, control.pauses("old-1"), control.pauses("new")) == (5000, True, False)
    assert (control.throttle_of("orders"), control.throttle_of("bills")) == (1000, 0), "the first that matches counts"
    assert (control.priority_of("orders"), control.priority_of("bills")) == (100, 10)
    assert read("").control == LinkControl()
    assert LinkControl(paused=True).pauses("anything")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('naming = "prefx"', "naming: no such value 'prefx'; did you mean prefix?"),
        ('[links."east->west".control]\npriorities = { orders = 101 }', "'orders': is 101, must be 1 to 100"),
        ('[links."east->west".control]\npriorities = { a.b = 1 }', "quote names with dots"),
        ('[links."east->west".control]\ntopic_throttles = { "(" = 1 }', "is not a regular expression"),
        ('[links."east->west".control]\npaused_topics = ["["]', "paused_topics: '[' is not a regular expression"),
        ('[links."east->west".control]\nthrottle = 1', "throttle: unknown; did you mean"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert sentence in caught.value.message
    assert '[links."east->west"' in caught.value.message
