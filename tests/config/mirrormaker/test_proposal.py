"""MirrorMaker's properties become settings that Twinshore takes, and no secret goes with them."""

from __future__ import annotations

import json

from testkit.errors import raises
from twinshore.config.errors import ConfigError
from twinshore.config.import_mirrormaker import ImportOutcome, propose
from twinshore.config.model import MappedStart, OffsetMode, TwinNaming
from twinshore.config.settings import parse_settings

PROPERTIES = """
clusters = east, west
east.bootstrap.servers = e1:9092, e2:9092
west.bootstrap.servers = w1:9092
west.security.protocol = SASL_SSL
west.sasl.mechanism = SCRAM-SHA-512
west.sasl.jaas.config = org.apache.kafka.Login required username="mm" password="hidden";
east->west.enabled = true
east->west.topics = orders.*, bills
east->west.replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy
west->east.enabled = false
offset.lag.max = 50
tasks.maxx = 3
"""


def test_a_proposal_is_settings_that_carry_the_copies_on() -> None:
    proposal = propose(PROPERTIES, "mm2.properties")
    (link,) = parse_settings(proposal.text, name="proposal", env={}).links
    assert (link.name, link.topics) == ("east->west", ("orders.*", "bills"))
    assert (link.mode, link.mapped_from, link.naming) == (OffsetMode.MAPPED, MappedStart.MIRRORMAKER, TwinNaming.SAME)
    assert "hidden" not in proposal.text
    assert any("environment variable WEST_PASSWORD" in step for step in proposal.steps)
    assert "# - stop MirrorMaker" in proposal.text


def test_every_property_has_a_fate() -> None:
    fates = {one.key: one.fate for one in propose(PROPERTIES, "mm2.properties").findings}
    assert fates["east->west.topics"] is ImportOutcome.CONVERTED
    assert fates["offset.lag.max"] is ImportOutcome.UNNEEDED
    assert fates["tasks.maxx"] is ImportOutcome.UNKNOWN


def test_properties_without_a_link_are_refused_with_a_remedy() -> None:
    with raises(ConfigError, "config.no-link-enabled") as caught:
        propose(PROPERTIES.replace("east->west.enabled = true", ""), "mm2.properties")
    assert "east->west.enabled = true" in caught.value.hint


def test_a_link_that_is_off_is_not_proposed_and_its_properties_say_so() -> None:
    proposal = propose(PROPERTIES + "west->east.topics = answers\n", "mm2.properties")
    assert proposal.links == ("east->west",)
    found = {one.key: (one.fate, one.sentence) for one in proposal.findings}
    assert found["west->east.enabled"][0] is ImportOutcome.UNNEEDED
    fate, off = found["west->east.topics"]
    assert fate is ImportOutcome.UNNEEDED and "west->east.enabled" in off
    assert found["east->west.enabled"] == (ImportOutcome.CONVERTED, "the link is proposed")


def _connector(kind: str, source: str, target: str, **more: object) -> dict[str, object]:
    sides: dict[str, object] = {}
    for side, alias in (("source", source), ("target", target)):
        sides |= {f"{side}.cluster.alias": alias, f"{side}.cluster.bootstrap.servers": f"{alias}1:9092"}
    of = f"org.apache.kafka.connect.mirror.Mirror{kind}Connector"
    return {"name": f"{kind}-{source}", "connector.class": of, **sides, **more}


def test_a_connector_that_is_off_proposes_no_link() -> None:
    runs = _connector("Source", "east", "west")
    for off in (False, "false"):
        rests = _connector("Source", "west", "east", enabled=off)
        assert propose(json.dumps([runs, rests]), "mm2.json").links == ("east->west",)
    with raises(ConfigError, "config.no-link-enabled"):
        propose(json.dumps(_connector("Source", "west", "east", enabled=False)), "mm2.json")
    with raises(ConfigError, "config.no-link-enabled"):
        propose(json.dumps(_connector("Checkpoint", "west", "east", enabled=True)), "mm2.json")
    half = _connector("Source", "east", "west", enabled=False)
    assert propose(json.dumps([runs, half]), "mm2.json").links == ("east->west",)
