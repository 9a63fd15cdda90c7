"""What clients may be told: what they would take, and no secret."""

from __future__ import annotations

import json

import pytest

from testkit.errors import raises
from twinshore.config.errors import ConfigError
from twinshore.switch.core.config_offer import check_app, check_offer, parse_bearer_token

EAST = {"bootstrap.servers": "east-1:9092, east-2:9092", "twinshore.cluster.id": "abc"}


def push(**more: object) -> str:
    return json.dumps({"clusters": {"east": EAST}, "home": "east", **more})


def test_the_clusters_of_a_push_are_named_with_their_addresses() -> None:
    found = check_offer(push(settings={"linger.ms": 5}, topics=["orders"]))
    assert {name: site.cluster.bootstrap for name, site in found.items()} == {"east": ("east-1:9092", "east-2:9092")}


def test_what_is_named_twice_is_refused_as_the_first_may_be_secret() -> None:
    text = push(settings={}).replace('"settings": {}', '"settings": {"sasl.password": "hush"}, "settings": {}')
    with raises(ConfigError, "client.push-key-twice"):
        check_offer(text)


@pytest.mark.parametrize("name", ["sasl.password", "ssl.key.password", "ssl.key.pem", "sasl.oauthbearer.client.secret"])
def test_what_is_secret_is_refused_and_not_repeated(name: str) -> None:
    for text in (push(settings={name: "hush"}), push(clusters={"east": {**EAST, name: "hush"}})):
        with pytest.raises(ConfigError) as refused:
            check_offer(text)
        assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        push(home="west"),
        push(hme="east"),
        push(clusters={}),
        push(settings={"ssl.endpoint.identification.algorithm": "none"}),
    ],
)
def test_what_clients_would_not_take_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        check_offer(text)


def test_names_and_tokens() -> None:
    assert check_app("shop-1.eu") == "shop-1.eu"
    for wrong in ("", "a/b", "../x", "a" * 65, "ü"):
        with pytest.raises(ConfigError):
            check_app(wrong)
    assert (
        parse_bearer_token("Bearer abc"),
        parse_bearer_token("bearer  abc "),
        parse_bearer_token("Basic abc"),
        parse_bearer_token(""),
    ) == ("abc", "abc", "", "")
