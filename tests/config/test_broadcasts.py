"""Broadcasts in the settings: each target gets a link, and what cannot be is refused with the remedy."""

from __future__ import annotations

import pytest

from twinshore.config.errors import ConfigError
from twinshore.config.settings import Settings, parse_settings

CLUSTERS = "\n".join(f'[clusters.{name}]\nbootstrap = ["{name}:9092"]' for name in ("london", "tokyo", "paris"))
PRICES = """
[broadcasts.prices]
source = "london"
targets = ["tokyo", "paris"]
topics = ["prices.*"]
"""


def parsed(text: str) -> Settings:
    return parse_settings(f"{CLUSTERS}\n{text}", name="x.toml", env={})


def refused(text: str) -> str:
    with pytest.raises(ConfigError) as error:
        parsed(text)
    return str(error.value)


def test_each_target_gets_a_link_that_names_the_broadcast() -> None:
    settings = parsed(PRICES + "[broadcasts.prices.queue]\nhigh_kb = 2048\n")
    found = [(link.name, link.broadcast, link.topics, link.queue.high_bytes) for link in settings.links]
    assert found == [
        ("london->tokyo", "prices", ("prices.*",), 2 << 20),
        ("london->paris", "prices", ("prices.*",), 2 << 20),
    ]
    assert set(settings.link_sections) == {"london->tokyo", "london->paris"}, "they are seeds as any link's section"


def test_a_link_may_name_a_broadcast_itself() -> None:
    settings = parsed('[links."london->tokyo"]\nbroadcast = "prices"\n')
    assert settings.links[0].broadcast == "prices"


def test_a_target_that_is_the_source_is_refused() -> None:
    said = refused(PRICES.replace('"tokyo"', '"london"'))
    assert "targets: 'london' is the source itself; leave ['paris']" in said


def test_two_broadcasts_from_one_cluster_to_another_are_refused() -> None:
    said = refused(PRICES + PRICES.replace("prices", "trades").replace('"tokyo", ', ""))
    assert "[broadcasts.trades] targets: 'paris' gets [broadcasts.prices] from 'london' already" in said


def test_a_link_that_a_broadcast_makes_may_not_stand_there_twice() -> None:
    said = refused(PRICES + '[links."london->paris"]\n')
    assert '[links."london->paris"] stands in [broadcasts.prices] too' in said


def test_a_watermark_below_one_batch_is_refused() -> None:
    said = refused(PRICES + "[broadcasts.prices.queue]\nhigh_kb = 512\n")
    assert "high_kb: 512 is below one batch" in said
    assert "give it 1025 or more" in said


@pytest.mark.parametrize("wrong", ["[broadcasts]\nprices = 3\n", 'broadcasts = "prices"\n'])
def test_what_is_no_section_is_said_to_be_none(wrong: str) -> None:
    with pytest.raises(ConfigError, match="must"):
        parse_settings(f"{wrong}\n{CLUSTERS}", name="x.toml", env={})


def test_a_wrong_key_is_named_once_and_where_it_was_written() -> None:
    said = refused(PRICES.replace("topics", "topcs"))
    assert (
        said
        == "x.toml: [broadcasts.prices] topcs: unknown; did you mean topics? (docs/settings.md lists every setting)"
    ), "two targets, one mistake"
    said = refused(PRICES + '[broadcasts.prices.queue]\npolicy = "frsh"\n')
    assert said.startswith("x.toml: [broadcasts.prices.queue] policy: no such value 'frsh'; did you mean fresh? (")
    both = refused(PRICES.replace("topics", "topcs") + '[links."paris->tokyo"]\ntopcs = []\n')
    assert '[links."paris->tokyo"] topcs: unknown; did you mean topics?' in both, "its own link's is its own"


@pytest.mark.parametrize("links", ["links = 3", 'links = "london->tokyo"', "links = []"])
def test_what_is_wrong_beside_a_broadcast_is_said_too(links: str) -> None:
    with pytest.raises(ConfigError, match="links"):
        parse_settings(f"{links}\n{CLUSTERS}\n{PRICES}", name="x.toml", env={})


def queue(*lines: str) -> str:
    return "\n".join([PRICES, "[broadcasts.prices.queue]", *lines, ""])


def test_a_fresh_queue_goes_by_watermarks_parts_and_age() -> None:
    text = queue('policy = "fresh"', "high_kb = 8192", "low_kb = 2048", "parts_max = 50", "max_age_s = 2.5")
    rules = parsed(text).links[0].queue
    assert (rules.fresh, rules.high_bytes, rules.low_bytes) == (True, 8 << 20, 2 << 20)
    assert (rules.parts_max, rules.max_age_s, rules.transactions) == (50, 2.5, False)
    assert parsed(queue('policy = "fresh"', "high_kb = 8192")).links[0].queue.low_bytes == 4 << 20, "half of it"


@pytest.mark.parametrize("line", ["low_kb = 2048", "max_age_s = 2", "transactions = true"])
def test_what_drops_is_refused_beside_a_policy_that_keeps(line: str) -> None:
    name = line.split()[0]
    said = refused(queue(line))
    assert f"{name}: " in said and 'policy = "fresh"' in said


def test_watermarks_that_cannot_be_are_refused() -> None:
    assert "low_kb: 9000 is above high_kb, 8192" in refused(
        queue('policy = "fresh"', "high_kb = 8192", "low_kb = 9000")
    )
    assert "low_kb: 12 is below one batch" in refused(queue('policy = "fresh"', "low_kb = 12"))
    assert "policy: no such value 'frsh'; did you mean fresh?" in refused(queue('policy = "frsh"'))


def test_a_fresh_queue_without_a_broadcast_is_refused() -> None:
    link = '[links."london->tokyo"]\n'
    fresh = '[links."london->tokyo".queue]\npolicy = "fresh"\n'
    said = refused(link + fresh)
    assert '[links."london->tokyo".queue] policy: ' in said
    assert parsed(f'{link}broadcast = "prices"\n{fresh}').links[0].queue.fresh


def test_a_broadcast_of_two_sources_is_refused() -> None:
    said = refused('[links."london->tokyo"]\nbroadcast = "p"\n[links."paris->tokyo"]\nbroadcast = "p"\n')
    assert "[links.\"paris->tokyo\"] broadcast: 'p' reads 'london', by london->tokyo, and this link 'paris'" in said
    assert "give it another name" in said
