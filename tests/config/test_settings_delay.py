"""The section `delay`: its defaults, its tables by topic, and what is told of a wrong one."""

from __future__ import annotations

import pytest

from twinshore.config.errors import ConfigError
from twinshore.config.sections.delay import DelaySettings
from twinshore.config.settings import parse_settings


def delay(section: str = "", env: dict[str, str] | None = None) -> DelaySettings:
    return parse_settings(section, name="test", env=env or {}).delay


def test_without_the_section_everything_has_a_default() -> None:
    found = delay()
    assert found == DelaySettings()
    assert (found.latest_threshold("orders"), found.consume_threshold("orders")) == (0, 0)
    assert found.recovery_point_s("orders") == 10.0


def test_thresholds_are_by_topic_where_a_table_names_it_first() -> None:
    found = delay(
        "[delay]\nmin_delay_latest_offset = 5\nmin_delay_consume_offset = 6\nrecovery_point_s = 7\n"
        'latest_thresholds = { "orders.*" = 100, "orders-eu" = 1 }\n'
        'consume_thresholds = { "orders" = 200 }\nrecovery_points_s = { "logs" = 3600 }\n'
    )
    assert [found.latest_threshold(name) for name in ("orders-eu", "bills")] == [100, 5]
    assert [found.consume_threshold(name) for name in ("orders", "orders-eu")] == [200, 6]
    assert [found.recovery_point_s(name) for name in ("logs", "orders")] == [3600, 7]


def test_the_environment_overrides() -> None:
    assert delay("", {"TWINSHORE_DELAY_PERIOD_S": "9"}).section.period_s == 9.0
    assert delay("", {"TWINSHORE_DELAY_QUIET": "22:00-06:00"}).section.quiet == ("22:00-06:00",)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("perid_s = 1", "period_s"),
        ("period_s = 0", "period_s"),
        ("sample_s = 9", "sample_s"),
        ('quiet = ["22-06"]', "22:00-06:00"),
        ('windows = "sparc"', "spark"),
        ('webhook_url = "ftp://x"', "https://host/path"),
        ('webhook_url = "https://me:secret@host/"', "webhook_token_env"),
        ('latest_thresholds = { "(" = 1 }', "regular expression"),
        ('latest_thresholds = { "orders" = -1 }', "orders"),
        ("consume_thresholds = 5", "table"),
        ("recovery_points_s = { orders = 1.5 }", "whole number"),
    ],
)
def test_a_wrong_line_is_named_with_its_place(line: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        delay(f"[delay]\n{line}\n")
    assert "[delay]" in str(caught.value)
    assert told in str(caught.value)
