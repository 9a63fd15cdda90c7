"""The section `groups` of a link: its defaults, its words, and what is told of a wrong one."""

from __future__ import annotations

import pytest

from twinshore.config.errors import ConfigError
from twinshore.config.model import GroupRules
from twinshore.config.settings import parse_settings

GROUND = """
[clusters.east]
bootstrap = ["e:1"]
[clusters.west]
bootstrap = ["w:1"]
[links."east->west"]
"""


def rules(section: str = "") -> GroupRules:
    return parse_settings(GROUND + section, name="test", env={}).links[0].groups


def test_groups_follow_once_a_second_unless_told_otherwise() -> None:
    assert rules() == GroupRules(enabled=True, every_s=1.0, resets=True, back=None, verify_s=60.0)


def test_each_rule_is_read() -> None:
    section = '[links."east->west".groups]\nenabled = false\nevery_s = 5\nresets = false\nback = true\nverify_s = 9\n'
    assert rules(section) == GroupRules(enabled=False, every_s=5.0, resets=False, back=True, verify_s=9.0)


@pytest.mark.parametrize(
    ("line", "told"),
    [("evry_s = 1", "every_s"), ("every_s = 0", "every_s"), ("back = 3", "back"), ("output = 3", "outputs")],
)
def test_a_wrong_word_is_named_with_its_place(line: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        rules(f'[links."east->west".groups]\n{line}\n')
    assert '[links."east->west".groups]' in str(caught.value)
    assert told in str(caught.value)
