"""The clusters of an application, in the words of its client's own settings."""

from __future__ import annotations

from typing import Any

import pytest

from testkit.errors import raises
from twinshore.client.sites import sites_of
from twinshore.config.errors import ConfigError, UnsupportedError
from twinshore.config.model import Cluster, SaslMechanism

EAST = {"bootstrap.servers": "east-1:9092, east-2:9092"}


def test_what_a_client_is_told_is_understood_here_too() -> None:
    secure = {
        **EAST,
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "anna",
        "sasl.password": "hidden",
        "ssl.ca.location": "/ca.pem",
        "twinshore.cluster.id": "abc",
        "compression.type": "lz4",
    }
    site = sites_of({"east": secure}, {"linger.ms": 5})["east"]
    assert site.cluster.bootstrap == ("east-1:9092", "east-2:9092")
    assert (site.cluster.security.sasl, site.cluster.security.protocol) == (SaslMechanism.SCRAM_SHA_256, "SASL_SSL")
    assert (site.cluster_id, site.cluster.security.password.read()) == ("abc", "hidden")
    assert "hidden" not in repr(site)
    assert "hidden" not in repr(site.cluster)
    settings = site.settings()
    assert (settings["sasl.password"], settings["linger.ms"], settings["compression.type"]) == ("hidden", 5, "lz4")
    assert "twinshore.cluster.id" not in settings


def test_a_cluster_of_ours_is_taken_as_it_is() -> None:
    cluster = Cluster("east", ("127.0.0.1:1",))
    assert sites_of({"east": cluster}, {"linger.ms": 5})["east"].settings()["linger.ms"] == 5


@pytest.mark.parametrize(
    ("given", "shared"),
    [
        ({"east": EAST}, {"transactional.id": "one"}),
        ({"east": {**EAST, "transactional.id": "one"}}, {}),
        ({"east": Cluster("east", ("127.0.0.1:1",))}, {"transactional.id": "one"}),
    ],
)
def test_transactions_are_refused_wherever_they_are_set(given: dict[str, Any], shared: dict[str, Any]) -> None:
    with raises(UnsupportedError, "client.transactional", cluster="east"):
        sites_of(given, shared)


@pytest.mark.parametrize(
    ("given", "wrong", "values"),
    [
        ({}, "no-clusters", {}),
        ({"east": {}}, "setting-missing", {"key": "bootstrap.servers"}),
        ({"east": {**EAST, "security.protocol": "TLS"}}, "protocol-unknown", {"protocol": "TLS"}),
        ({"east": {**EAST, "security.protocol": "SASL_SSL"}}, "sasl-mechanism-unknown", {"mechanism": "(none)"}),
        ({"east": {**EAST, "sasl.oauthbearer.config": "x"}}, "setting-unknown", {"key": "sasl.oauthbearer.config"}),
        ({"east": {**EAST, "acks": 0}}, "acks-needed", {"key": "acks", "value": "0"}),
        (
            {"east": {**EAST, "request.required.acks": "0"}},
            "acks-needed",
            {"key": "request.required.acks", "value": "0"},
        ),
        ({"east": {**EAST, "acks": "08"}}, "acks-needed", {"value": "08"}),  # as librdkafka reads it: none
        ({"east": {**EAST, "default.topic.config": {"acks": 0}}}, "acks-needed", {"value": "0"}),
    ],
)
def test_what_cannot_be_followed_is_refused(given: dict[str, Any], wrong: str, values: dict[str, str]) -> None:
    with raises(ConfigError, f"client.{wrong}", **values):
        sites_of(given, {})


@pytest.mark.parametrize("acks", ["all", "ALL", -1, 1, "2"])
def test_a_producer_whose_calls_are_answered_may_wait_for_fewer_copies(acks: object) -> None:
    assert sites_of({"east": EAST}, {"acks": acks})["east"].settings()["acks"] == acks


def test_a_producer_that_nobody_answers_is_refused_wherever_it_is_set() -> None:
    """It would say that nothing is on its way to a topic, while it is."""
    for given in (EAST, Cluster("east", ("127.0.0.1:1",))):
        with raises(ConfigError, "client.acks-needed", value="0"):
            sites_of({"east": given}, {"acks": 0, "enable.idempotence": False})
