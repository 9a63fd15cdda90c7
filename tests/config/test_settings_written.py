"""How what is refused is to be written: a hint beside what a parser, or a table of names, says by itself."""

from __future__ import annotations

import pytest

from testkit.errors import raises
from twinshore.config.errors import ConfigError
from twinshore.config.settings import parse_settings


@pytest.mark.parametrize(
    ("line", "key"), [('driver.memory = "2g"', "driver.memory"), ('"ui.port" = 1', "ui.port")], ids=str
)
def test_a_setting_of_spark_is_told_how_it_begins(line: str, key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_settings(f"[mirror.spark]\n{line}\n", name="t", env={})
    unknown = f"[mirror.spark] {key}: unknown; settings of Spark begin with `spark.`: did you mean spark.{key}?"
    assert unknown in refused.value.message
    assert "known: master" not in refused.value.message


@pytest.mark.parametrize(
    ("header", "quoted"),
    [
        ("[links.berlin->madrid]", '[links."berlin->madrid"]'),
        ("[ links.berlin->madrid.queue ]", '[links."berlin->madrid".queue]'),
    ],
)
def test_a_link_without_quotes_is_told_where_they_belong(header: str, quoted: str) -> None:
    with raises(ConfigError, "config.not-toml") as refused:
        parse_settings(f'[store]\nurl = "sqlite:///s"\n{header}\ntopics = ["a"]\n', name="t", env={})
    assert refused.value.hint == f"put the link's name in quotes: {quoted}"
    with raises(ConfigError, "config.not-toml") as refused:
        parse_settings("[store\n", name="t", env={})
    assert "quotes" not in refused.value.hint
