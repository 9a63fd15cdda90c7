"""The section `protection`: which levels topics begin with."""

from __future__ import annotations

from typing import get_args, get_type_hints

import pytest

from twinshore.config.errors import ConfigError
from twinshore.config.sections.protection import SECTION, ProtectionSection
from twinshore.config.settings import parse_settings
from twinshore.protection.core.model import AfterFailover, ProtectionLevel, ReadFrom

CLUSTERS = '[clusters.east]\nbootstrap = ["e:1"]\n[clusters.west]\nbootstrap = ["w:1"]\n'


def read(text: str) -> dict[str, ProtectionSection]:
    return parse_settings(CLUSTERS + text, name="test", env={}).of(SECTION)


def test_a_section_has_the_level_of_topics() -> None:
    assert read("") == {}
    text = """
    [protection."payments.*"]
    twin = "west"
    after_failover = "wait"
    [protection.clicks]
    level = "async"
    loss_at_most_s = 30
    """
    assert read(text) == {
        "payments.*": ProtectionSection(level="sync", alone_after_s=5.0, twin="west", after_failover="wait"),
        "clicks": ProtectionSection(level="async", loss_at_most_s=30.0),
    }


def test_the_words_are_those_of_the_levels() -> None:
    kinds = get_type_hints(ProtectionSection)
    assert get_args(kinds["level"]) == tuple(ProtectionLevel)
    assert get_args(kinds["after_failover"]) == tuple(AfterFailover)
    assert get_args(kinds["read"]) == tuple(ReadFrom)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("protection = 3\n", "must hold one section per topic"),
        ('[protection."a("]\n', "is not a regular expression"),
        ('[protection.a]\nlevel = "sinc"\n', "level: no such value 'sinc'; did you mean sync?"),
        ('[protection.a]\ntwin = "wets"\n', "twin: no cluster 'wets'; did you mean west?"),
        ("[protection.a]\nalone_after_s = 1\n", "alone_after_s: is 1, the least is 3"),
        ('[protection.a]\nlevel = "async"\nread = "both"\n', "needs the level sync or strict"),
        ("[protection.a.b]\n", "b: unknown"),
    ],
)
def test_what_is_wrong_is_said(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_settings(text + CLUSTERS if text.startswith("protection") else CLUSTERS + text, name="test", env={})
    assert says in str(raised.value)
